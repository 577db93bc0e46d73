// SPDX-License-Identifier: MIT
// How long a thread was ready to run and had no processor, which the kernel counts, and when that
// says that a machine is busy with other work. Where ranks are more than processors they wait for
// each other's, and this tells nothing. What a hypervisor takes from a virtual machine nobody
// counts here: that is the ordinary noise of one. Any thread; a reading is three calls of the
// system, some microseconds.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::collectives {

// Of something that took so many seconds.
struct ProcessorWait {
  double waited = 0, seconds = 0;

  double part() const { return seconds > 0 ? waited / seconds : 0; }
  // More than a quarter, and more than what single calls of other programs take now and then.
  bool disturbed() const { return part() > kPart && waited > kLeast; }

  static constexpr double kPart = 0.25, kLeast = 30e-3;
};

// Seconds that the calling thread has waited for a processor since it began; 0 where the kernel
// does not count.
double seconds_without_processor();

// Starts when it is made; `lap` says what came since then, or since the last lap. Of the thread
// that made it. `waited`: as seconds_without_processor, for tests.
class ProcessorWaitClock {
 public:
  explicit ProcessorWaitClock(std::function<double()> waited = seconds_without_processor);
  ProcessorWait lap();

 private:
  ProcessorWait now() const;
  std::function<double()> waited_;
  ProcessorWait at_;  // since the thread, and the clock, began
};

// Likewise of all threads of this process: a lap is that of the thread that waited longest. Of one
// that is new its time before counts, too. After the first lap nothing large is allocated.
class ThreadWaits {
 public:
  ProcessorWait lap();

 private:
  std::map<std::string, double> waited_;  // by thread
  std::shared_ptr<void> threads_;         // the folder of them, a DIR
  double at_ = 0;
};

// Seconds in a text of /proc/thread-self/schedstat, "47802000 1200000 17": the second number, in
// nanoseconds. 0 for any other text, as where a kernel does not count.
double waited_seconds(std::string_view schedstat);

}  // namespace lockstep::collectives
