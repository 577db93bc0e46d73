// SPDX-License-Identifier: MIT
// Sharing of device memory and events between the processes of a host. A device that can share also
// derives from ProcessSharing (dynamic_cast from Device). An export is a line of text, which
// reaches the other processes by any means. Only these open it, never its owner, and they close it
// before the owner releases the memory or the event.
//
// Thread-safe. A call costs milliseconds, so use it when memory is planned, never in a step. Throws
// Error(kDevice) with the driver's message if sharing is impossible (containers that share nothing,
// parts of GPUs, systems in between). Callers find out by trying.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "engine/device/buffer.h"

namespace lockstep::engine {

class Ops;  // engine/ops/ops.h

// Orders the reductions of one replica (engine/ops/ops.h) for other processes. The replica's
// process makes and sets it; the others open it, and their replicas queue waits for it. A process
// that knows, by any means, that it was set waits for what came before; if it was set again since,
// for more. The device must outlive it. Thread-safe.
class ProcessEvent {
 public:
  virtual ~ProcessEvent() = default;
  virtual std::string exported() const = 0;  // only if it was made here
  // Sets the event behind all reductions of `ops` so far, which are of this device; the next call
  // moves it.
  virtual void set(const Ops& ops) const = 0;
  // Makes reductions that `ops` queues from now on wait for the event.
  virtual void hold_back(const Ops& ops) const = 0;
};

class ProcessSharing {
 public:
  // Is the unit of sharing in bytes: a driver may place smaller memory beside memory that is not
  // meant.
  static constexpr std::size_t kShareUnit = std::size_t(2) << 20;

  virtual ~ProcessSharing() = default;
  virtual std::string place() const = 0;  // the device, in all processes: "0000:3b:00.0"
  // Returns an export of memory that the device or its ops allocated, from its first byte on, of
  // kShareUnit bytes or more. Valid until that buffer is destroyed.
  virtual std::string export_memory(const std::byte* memory) = 0;
  // Opens memory for the kernels of this device. The buffer closes it. Call it once per export.
  virtual Buffer open_memory(const std::string& exported, std::size_t bytes) = 0;
  // Maps whole pages of host memory, which kernels then access in place. This ends with the
  // returned buffer, which owns nothing else.
  virtual Buffer pin(std::byte* memory, std::size_t bytes) = 0;
  virtual std::unique_ptr<ProcessEvent> make_event() = 0;
  virtual std::unique_ptr<ProcessEvent> open_event(const std::string& exported) = 0;
  // Acts like Ops::set_on_waiting, with nanoseconds::max() if work failed: what `look` throws is
  // thrown instead.
  virtual void on_waiting(std::function<void(std::chrono::nanoseconds)> look) = 0;
  // Gives up on queued work that waits for a dead process and will never end. Nobody waits for this
  // device again, and its memory is left to the driver.
  virtual void give_up() = 0;
};

}  // namespace lockstep::engine
