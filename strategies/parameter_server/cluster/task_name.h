// SPDX-License-Identifier: MIT
// A task of a job, and a device there: "/job:ps/task:1/cpu:0". Rules may leave any of it out
// ("/job:worker", "/task:1", "/cpu:0", or nothing); names within each other are merged, and what is
// still not said is filled in last. Pure; any thread.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "engine/device/device.h"

namespace lockstep::strategies {

struct TaskName {
  std::string job = {};                         // "worker", "ps"; empty: not said
  std::optional<int> task = {};                 // of the job, from 0
  std::optional<engine::DeviceId> device = {};  // of the task: "cpu", 0
  bool operator==(const TaskName&) const = default;
};

// Parts in any order, each at most once; "" says nothing; a device without its number is the first.
// Throws Error(kInvalid) with the text and the part of it that cannot be read.
TaskName parse_task_name(std::string_view text);

// Job, task, device, as far as they are said: what parse_task_name reads back as the same.
std::string to_string(const TaskName& name);

// What `inner` says, part by part, and what `outer` says of the rest. A device is one part: its
// kind and its number belong together.
TaskName merge(const TaskName& outer, const TaskName& inner);

// Task 0 and cpu:0 where they are not said. The job stays as it is.
TaskName with_defaults(TaskName name);

}  // namespace lockstep::strategies
