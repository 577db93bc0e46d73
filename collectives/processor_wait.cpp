// SPDX-License-Identifier: MIT
#include "collectives/processor_wait.h"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives {
double seconds_without_processor() {
  std::ifstream file("/proc/thread-self/schedstat");
  std::string line;
  std::getline(file, line);
  return waited_seconds(line);
}

ProcessorWaitClock::ProcessorWaitClock(std::function<double()> waited)
    : waited_(std::move(waited)), at_(now()) {}

ProcessorWait ProcessorWaitClock::now() const {
  const std::chrono::duration<double> clock = engine::Clock::now().time_since_epoch();
  return {waited_(), clock.count()};
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
