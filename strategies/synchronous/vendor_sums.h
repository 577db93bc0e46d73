// SPDX-License-Identifier: MIT
// Sums by NCCL for the one replica of this process, among GPUs of several processes. It wraps
// NCCL's communicator for the threads of a strategy; the executor calls `sum`. Work that is queued
// with a rank that is lost or has failed never ends by itself. A thread detects and ends it; waits
// for the device then throw. Thread-safe. Costs and errors: collectives/run/device_communicator.h.
// The ops must outlive it.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/job/job.h"
#include "collectives/run/device_communicator.h"
#include "engine/base/error.h"
#include "engine/ops/ops.h"

namespace lockstep::collectives {
class Bootstrap;
}

namespace lockstep::strategies {

// Selects NCCL (collectives/nccl/nccl.h) or a substitute for tests.
struct VendorLibrary {
  std::function<std::string()> version = [] { return std::string(); };  // empty: unavailable
  // Opens a communicator, like the function in collectives/nccl/nccl.h.
  std::function<std::unique_ptr<collectives::DeviceCommunicator>(
      collectives::Bootstrap&, const collectives::DeviceCommunicatorOptions&)>
      open = {};
};

class VendorSums {
 public:
  // Waits for the device on which sums are queued end with Error(kTimeout) at the job's deadline.
  // The job, which must outlive this object, also stops it.
  VendorSums(collectives::Job& job, std::unique_ptr<collectives::DeviceCommunicator> communicator,
             engine::Ops& ops);
  ~VendorSums();
  VendorSums(const VendorSums&) = delete;
  VendorSums& operator=(const VendorSums&) = delete;

  // Queues the sum of all ranks, in place, after this replica's reductions so far.
  void sum(std::byte* data, std::size_t count, engine::DType dtype);
  // Calls `listen` regularly from now on; it throws if ranks of this job have stopped.
  void watch(std::function<void()> listen);
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  // Registers memory for sums until the end of this object.
  void add_memory(std::byte* data, std::size_t bytes);
  // Ends queued sums now, unfinished; later calls throw the error.
  void stop(const engine::Error& error) noexcept;

 private:
  void look(std::chrono::nanoseconds waited);

  std::mutex mutex_;
  std::unique_ptr<collectives::DeviceCommunicator> communicator_;
  engine::Ops& ops_;
  std::atomic<std::chrono::milliseconds> deadline_;
  std::condition_variable_any woken_;
  collectives::Job::Stopper stopper_;
  std::jthread watcher_;  // last member: it uses the others
};

}  // namespace lockstep::strategies
