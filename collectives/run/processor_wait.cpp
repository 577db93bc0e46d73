// SPDX-License-Identifier: MIT
#include "collectives/run/processor_wait.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// Reads the file in a thread's folder without a stream, which would allocate 8 KiB.
double waited_by(const std::string& thread) {
  const int file = ::open((thread + "/schedstat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128];
  const ssize_t length = ::read(file, text, sizeof text);
  ::close(file);
  return length <= 0 ? 0 : waited_seconds({text, std::size_t(length)});
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
  const std::string folder = "/proc/self/task";
  const double before = std::exchange(at_, clock_seconds());
  std::map<std::string, double> now;
  ProcessorWait longest{0, at_ - before};
  if (!threads_)
    threads_.reset(static_cast<void*>(::opendir(folder.c_str())), [](void* open) {
      if (open != nullptr) ::closedir(static_cast<DIR*>(open));
    });
  if (!threads_) return longest;
  auto* const threads = static_cast<DIR*>(threads_.get());
  ::rewinddir(threads);
  while (const dirent* const entry = ::readdir(threads)) {
    const std::string thread = entry->d_name;
    if (thread.starts_with('.')) continue;
    now[thread] = waited_by(folder + "/" + thread);
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
