// SPDX-License-Identifier: MIT
#include "engine/report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace lockstep::engine {
namespace {

std::string quoted(const std::string& text) {
  using Handler = nlohmann::json::error_handler_t;
  return nlohmann::json(text).dump(-1, ' ', false, Handler::replace);
}

std::string microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}{}.{:03}", nanoseconds < 0 ? "-" : "", std::abs(nanoseconds) / 1000,
                     std::abs(nanoseconds) % 1000);
}

std::string metadata(int pid, int tid, const char* what, const std::string& argument) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", pid, tid, what,
                     argument);
}

// Returns the step in which a span begins, or -1.
std::int64_t step_at(const std::vector<Timeline::Step>& steps, std::int64_t begin) {
  const auto after = std::upper_bound(
      steps.begin(), steps.end(), begin,
      [](std::int64_t time, const Timeline::Step& step) { return time < step.begin; });
  return after == steps.begin() ? -1 : std::prev(after)->number;
}

// Returns `{"step":3}` with the kind's own members appended.
std::string arguments(const Timeline::Kind& kind, std::int64_t step) {
  const std::string own = kind.arguments.size() > 2 ? "," + kind.arguments.substr(1) : "}";
  return fmt::format(R"({{"step":{}{})", step, own);
}

}  // namespace

std::string trace_events(const Timeline& timeline, std::int64_t shift, const std::string& replica) {
  const int pid = timeline.rank();
  const std::vector<Timeline::Kind>& kinds = timeline.kinds();
  std::vector<std::string> lines{
      metadata(pid, 0, "process_name", "\"name\":" + quoted(replica)),
      metadata(pid, 0, "process_sort_index", fmt::format("\"sort_index\":{}", pid)),
      metadata(pid, 0, "thread_name", R"("name":"computing")")};
  std::vector<std::string> events;
  std::vector<std::int64_t> free_at;  // one per communication lane
  for (const Timeline::Span& span : timeline.spans()) {
    const Timeline::Kind& kind = kinds[std::size_t(span.kind)];
    int tid = 0;
    if (kind.lane == Timeline::Lane::kCommunication) {
      const auto lane = std::find_if(free_at.begin(), free_at.end(),
                                     [&](std::int64_t end) { return end <= span.begin; });
      tid = int(lane - free_at.begin()) + 1;
      if (lane == free_at.end()) free_at.push_back(0);
      free_at[std::size_t(tid - 1)] = span.end;
    }
    events.push_back(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":{},"name":{},"args":{}}})", pid, tid,
        microseconds(span.begin + shift), microseconds(span.end - span.begin),
        quoted(kind.category), quoted(kind.name),
        arguments(kind, step_at(timeline.steps(), span.begin))));
  }
  for (std::size_t lane = 1; lane <= free_at.size(); ++lane) {
    lines.push_back(metadata(pid, int(lane), "thread_name",
                             fmt::format("\"name\":\"communication {}\"", lane)));
  }
  lines.insert(lines.end(), events.begin(), events.end());
  return fmt::format("{}", fmt::join(lines, ",\n"));
}

std::string trace_document(const std::vector<std::string>& events) {
  std::vector<std::string> parts = events;
  std::erase(parts, "");
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n",
                     fmt::join(parts, ",\n"));
}

}  // namespace lockstep::engine
