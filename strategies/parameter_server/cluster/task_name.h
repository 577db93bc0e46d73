// SPDX-License-Identifier: MIT
// The name of a task of a job, or of a device there: "/job:ps/task:1/cpu:0". Rules may omit any
// part ("/job:worker", "/task:1", "/cpu:0", or everything). Nested names are merged; defaults fill
// the missing parts last. Pure; thread-safe.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "engine/device/device.h"

namespace lockstep::strategies {

struct TaskName {
  std::string job = {};                         // "worker", "ps"; empty: unspecified
  std::optional<int> task = {};                 // index in the job, from 0
  std::optional<engine::DeviceId> device = {};  // device of the task: "cpu", 0
  bool operator==(const TaskName&) const = default;
};

// Accepts parts in any order, each at most once. "" specifies nothing; a device without a number is
// the first. Throws Error(kInvalid) with the text and its invalid part.
TaskName parse_task_name(std::string_view text);

// Returns the specified parts: job, task, device. parse_task_name returns the same name for this
// text.
std::string to_string(const TaskName& name);

// Returns the parts of `inner`, and the parts of `outer` that `inner` does not specify. A device is
// one part, kind and number together.
TaskName merge(const TaskName& outer, const TaskName& inner);

// Fills in task 0 and cpu:0 if they are unspecified. The job is unchanged.
TaskName with_defaults(TaskName name);

}  // namespace lockstep::strategies
