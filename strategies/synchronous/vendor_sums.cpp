// SPDX-License-Identifier: MIT
#include "strategies/synchronous/vendor_sums.h"

#include <utility>

namespace lockstep::strategies {

namespace {

constexpr std::chrono::milliseconds kBetween(50);  // interval of the watcher's checks

}  // namespace

VendorSums::VendorSums(collectives::Job& job,
                       std::unique_ptr<collectives::DeviceCommunicator> communicator,
                       engine::Ops& ops)
    : communicator_(std::move(communicator)),
      ops_(ops),
      deadline_(job.deadline()),
      stopper_(job, [this](const engine::Error& why) { stop(why); }) {
  ops_.set_on_waiting([this](std::chrono::nanoseconds waited) { look(waited); });
}

VendorSums::~VendorSums() {
  watcher_ = {};
  ops_.set_on_waiting({});
}

void VendorSums::watch(std::function<void()> listen) {
  watcher_ = std::jthread([this, listen = std::move(listen)](std::stop_token over) {
    while (!over.stop_requested()) {
      try {
        listen();
        std::unique_lock lock(mutex_);
        communicator_->check();
        woken_.wait_for(lock, over, kBetween, [] { return false; });
      } catch (const engine::Error& error) {
        return stop(error);
      }
    }
  });
}

void VendorSums::sum(std::byte* data, std::size_t count, engine::DType dtype) {
  const std::scoped_lock lock(mutex_);
  communicator_->all_reduce(data, count, dtype, ops_.reductions_queue());
}

void VendorSums::add_memory(std::byte* data, std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  communicator_->add_memory(data, bytes);
}

void VendorSums::stop(const engine::Error& error) noexcept {
  const std::scoped_lock lock(mutex_);
  communicator_->abort(error);
}

// Skips the check if another thread is in `sum`, which checks itself.
void VendorSums::look(std::chrono::nanoseconds waited) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  communicator_->check();
  const std::chrono::milliseconds deadline = deadline_;
  if (waited < deadline || waited == std::chrono::nanoseconds::max()) return;
  const engine::Error late(
      engine::Code::kTimeout,
      fmt::format(
          "rank {} waited {} ms for its GPU, in which sums of NCCL are queued: another rank "
          "may not have come to them",
          communicator_->rank(), deadline.count()));
  communicator_->abort(late);
  throw late;
}

}  // namespace lockstep::strategies
