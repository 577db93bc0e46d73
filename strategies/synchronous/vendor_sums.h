// SPDX-License-Identifier: MIT
// Sums that NCCL makes for the one replica of this process, among GPUs of several processes: its
// communicator, made safe for the threads of a strategy. `sum` is for the executor. What was queued
// with a rank that is lost, or has failed, never ends by itself: a thread looks after that, and
// ends it, and waits for the device see it. Any thread. Costs and errors:
// collectives/run/device_communicator.h. The ops outlive it.
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

// NCCL (collectives/nccl/nccl.h), or what tests put in its place.
struct VendorLibrary {
  std::function<std::string()> version = [] { return std::string(); };  // empty: it is not there
  // As collectives/nccl/nccl.h's.
  std::function<std::unique_ptr<collectives::DeviceCommunicator>(
      collectives::Bootstrap&, const collectives::DeviceCommunicatorOptions&)>
      open = {};
};

class VendorSums {
 public:
  // Waits for the device, in which sums are queued, end with Error(kTimeout) at the job's deadline.
  // Stopped with the job, which outlives this.
  VendorSums(collectives::Job& job, std::unique_ptr<collectives::DeviceCommunicator> communicator,
             engine::Ops& ops);
  ~VendorSums();
  VendorSums(const VendorSums&) = delete;
  VendorSums& operator=(const VendorSums&) = delete;

  // Queues the sum of all ranks, in place, behind this replica's reductions so far.
  void sum(std::byte* data, std::size_t count, engine::DType dtype);
  // From now on: `listen` throws where ranks of this job have stopped. It is called every so often.
  void watch(std::function<void()> listen);
  void set_deadline(std::chrono::milliseconds deadline) { deadline_ = deadline; }
  // Memory in which sums will be made; until the end of this.
  void add_memory(std::byte* data, std::size_t bytes);
  // What is queued ends now, unfinished; later calls throw the error.
  void stop(const engine::Error& error) noexcept;

 private:
  void look(std::chrono::nanoseconds waited);

  std::mutex mutex_;
  std::unique_ptr<collectives::DeviceCommunicator> communicator_;
  engine::Ops& ops_;
  std::atomic<std::chrono::milliseconds> deadline_;
  std::condition_variable_any woken_;
  collectives::Job::Stopper stopper_;
  std::jthread watcher_;  // last: it uses these
};

}  // namespace lockstep::strategies
