// SPDX-License-Identifier: MIT
// What processes of one host need to use memory of each other's devices: a device that can share so
// is one of these, too (dynamic_cast from Device). What is exported is a line of text, which any
// way takes to the other processes; what names memory or an event is opened there alone, never by
// the process that it is of, and closed there before that process may let go of it.
//
// Any thread. Costs milliseconds a call; for where memory is planned, never in a step. Errors:
// Error(kDevice) with the driver's words where it has no such way (containers that share nothing,
// parts of GPUs, systems in between), so whoever wants to know tries it.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "engine/device/buffer.h"

namespace lockstep::engine {

class Ops;  // engine/ops/ops.h

// An event in the reductions of one replica (engine/ops/ops.h), which other processes see. Made by
// the replica's process, which sets it, and opened by the others, whose replicas queue waits for
// it. Who has heard, in whatever way, that it was set waits for what came before; where it was set
// again since, for more. The device outlives it. Any thread.
class ProcessEvent {
 public:
  virtual ~ProcessEvent() = default;
  virtual std::string exported() const = 0;  // of one that was made here
  // Behind all reductions of `ops` so far, which are of this device; the next call moves it.
  virtual void set(const Ops& ops) const = 0;
  // Reductions that `ops` queues from now on come behind it.
  virtual void hold_back(const Ops& ops) const = 0;
};

class ProcessSharing {
 public:
  // Memory is shared whole, and a driver may put less than so many bytes beside what is not meant.
  static constexpr std::size_t kShareUnit = std::size_t(2) << 20;

  virtual ~ProcessSharing() = default;
  virtual std::string place() const = 0;  // which device it is, in all processes: "0000:3b:00.0"
  // Memory as `allocate` of the device or of its ops gave it, from its first byte on, kShareUnit or
  // more. Valid until that buffer goes.
  virtual std::string export_memory(const std::byte* memory) = 0;
  // From now on kernels of this device read and write it. Closed with the buffer. Once for each.
  virtual Buffer open_memory(const std::string& exported, std::size_t bytes) = 0;
  // Memory of the host, in whole pages: kernels read and write it where it lies, until the buffer,
  // which holds nothing else, goes.
  virtual Buffer pin(std::byte* memory, std::size_t bytes) = 0;
  virtual std::unique_ptr<ProcessEvent> make_event() = 0;
  virtual std::unique_ptr<ProcessEvent> open_event(const std::string& exported) = 0;
  // As Ops::set_on_waiting; nanoseconds::max() where work failed: what it throws is thrown instead.
  virtual void on_waiting(std::function<void(std::chrono::nanoseconds)> look) = 0;
  // What is queued waits for a process that is gone, and will never end: nobody waits for this
  // device again, and what lies there is left to the driver.
  virtual void give_up() = 0;
};

}  // namespace lockstep::engine
