// SPDX-License-Identifier: MIT
#include "collectives/processor_wait.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

double waited_by(const std::filesystem::path& thread) {
  std::ifstream file(thread / "schedstat");
  std::string line;
  std::getline(file, line);
  return waited_seconds(line);
}

double clock_seconds() {
  const std::chrono::duration<double> clock = engine::Clock::now().time_since_epoch();
  return clock.count();
}

}  // namespace

double seconds_without_processor() {
  return waited_by("/proc/thread-self");
}

ProcessorWait ThreadWaits::lap() {
  namespace fs = std::filesystem;
  const double before = std::exchange(at_, clock_seconds());
  std::map<std::string, double> now;
  ProcessorWait longest{0, at_ - before};
  std::error_code ignored;
  for (fs::directory_iterator i("/proc/self/task", ignored), end; !ignored && i != end;
       i.increment(ignored)) {
    const std::string thread = i->path().filename();
    now[thread] = waited_by(i->path());
    const auto known = waited_.find(thread);
    const double since = now[thread] - (known == waited_.end() ? 0 : known->second);
    longest.waited = std::max(longest.waited, since);
  }
  waited_ = std::move(now);
  return longest;
}

ProcessorWaitClock::ProcessorWaitClock(std::function<double()> waited)
    : waited_(std::move(waited)), at_(now()) {}

ProcessorWait ProcessorWaitClock::now() const {
  return {waited_(), clock_seconds()};
}

ProcessorWait ProcessorWaitClock::lap() {
  const ProcessorWait before = at_;
  at_ = now();
  return {at_.waited - before.waited, at_.seconds - before.seconds};
}

double waited_seconds(std::string_view schedstat) {
  const char* at = schedstat.data();
  const char* const end = at + schedstat.size();
  std::uint64_t numbers[3] = {};
  for (std::uint64_t& number : numbers) {
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return 0;
    at = next < end && *next == ' ' ? next + 1 : next;
  }
  return double(numbers[1]) * 1e-9;
}

}  // namespace lockstep::collectives
