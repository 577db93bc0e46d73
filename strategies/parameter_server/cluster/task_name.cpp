// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/cluster/task_name.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>

#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

using engine::require;

constexpr std::array<std::string_view, 3> kDevices{"cpu", "gpu", "reference"};

bool is_job(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && letter(name.front()) && std::ranges::all_of(name, [&](char c) {
    return letter(c) || c == '_' || (c >= '0' && c <= '9');
  });
}

// Accepts digits only: neither signs nor spaces.
std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const char* end = text.data() + text.size();
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

// Parses one part, "task:1", into `name`. `text`: the whole, for errors.
void take(std::string_view part, std::string_view text, TaskName& name) {
  const std::size_t colon = std::min(part.find(':'), part.size());
  const std::string_view key = part.substr(0, colon);
  const bool has_value = colon < part.size();
  const std::string_view value = has_value ? part.substr(colon + 1) : std::string_view();
  bool again = false, good = false;
  if (key == "job") {
    again = !name.job.empty();
    good = is_job(value);
    name.job = value;
  } else if (key == "task") {
    again = name.task.has_value();
    name.task = number_of(value);
    good = name.task.has_value();
  } else if (std::ranges::find(kDevices, key) != kDevices.end()) {
    again = name.device.has_value();
    const std::optional<int> index = has_value ? number_of(value) : 0;
    good = index.has_value();
    name.device = engine::DeviceId{std::string(key), index.value_or(0)};
  }
  require(good,
          "'{}' names no task: '{}' is neither job:NAME, task:NUMBER nor a device ({}:NUMBER); "
          "write e.g. /job:ps/task:1/cpu:0, or a part of that",
          text, part, fmt::join(kDevices, ":NUMBER, "));
  require(!again, "'{}' names no task: '{}' is said twice there", text,
          key == "job" || key == "task" ? key : "a device");
}

}  // namespace

TaskName parse_task_name(std::string_view text) {
  TaskName name;
  if (text.empty()) return name;
  require(text.front() == '/',
          "'{}' names no task: it must begin with '/'; write e.g. /job:ps/task:1/cpu:0, or a part "
          "of that",
          text);
  for (std::size_t at = 1; at <= text.size();) {
    const std::size_t slash = std::min(text.find('/', at), text.size());
    take(text.substr(at, slash - at), text, name);
    at = slash + 1;
  }
  return name;
}

std::string to_string(const TaskName& name) {
  std::string text;
  if (!name.job.empty()) text += "/job:" + name.job;
  if (name.task) text += fmt::format("/task:{}", *name.task);
  if (name.device) text += "/" + engine::to_string(*name.device);
  return text;
}

TaskName merge(const TaskName& outer, const TaskName& inner) {
  return {inner.job.empty() ? outer.job : inner.job, inner.task ? inner.task : outer.task,
          inner.device ? inner.device : outer.device};
}

TaskName with_defaults(TaskName name) {
  if (!name.task) name.task = 0;
  if (!name.device) name.device = engine::DeviceId{"cpu", 0};
  return name;
}

}  // namespace lockstep::strategies
