// SPDX-License-Identifier: MIT
// Time in which a thread was ready to run but had no processor, as the kernel counts it. It shows
// whether a machine is busy with other work. If ranks outnumber processors they wait for each
// other, and this shows nothing. Time that a hypervisor takes from a virtual machine is not
// counted: it is the ordinary noise of one. Thread-safe. A reading takes three system calls, some
// microseconds.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::collectives {

// Holds the seconds that a thread waited for a processor, out of `seconds`.
struct ProcessorWait {
  double waited = 0, seconds = 0;

  double part() const { return seconds > 0 ? waited / seconds : 0; }
  // Returns whether the wait is more than a quarter, and more than single calls of other programs
  // take.
  bool disturbed() const { return part() > kPart && waited > kLeast; }

  static constexpr double kPart = 0.25, kLeast = 30e-3;
};

// Returns the seconds that the calling thread has waited for a processor since it began; 0 if the
// kernel does not count.
double seconds_without_processor();

// Measures the wait of the thread that made it. `lap` returns the wait since then or since the last
// lap. `waited`: like seconds_without_processor, for tests.
class ProcessorWaitClock {
 public:
  explicit ProcessorWaitClock(std::function<double()> waited = seconds_without_processor);
  ProcessorWait lap();

 private:
  ProcessorWait now() const;
  std::function<double()> waited_;
  ProcessorWait at_;  // since the thread, and the clock, began
};

// Measures the waits of all threads of this process; a lap is that of the thread that waited
// longest. The earlier time of a new thread counts too. After the first lap nothing large is
// allocated.
class ThreadWaits {
 public:
  ProcessorWait lap();

 private:
  std::map<std::string, double> waited_;  // by thread
  std::shared_ptr<void> threads_;         // their folder, a DIR
  double at_ = 0;
};

// Returns the seconds in a text of /proc/thread-self/schedstat, "47802000 1200000 17": the second
// number, in nanoseconds. Returns 0 for any other text, as from a kernel that does not count.
double waited_seconds(std::string_view schedstat);

}  // namespace lockstep::collectives
