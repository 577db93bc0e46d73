// SPDX-License-Identifier: MIT
#include "tools/bench/nccl_ranks.h"

#include <fmt/core.h>

#include <exception>
#include <mutex>
#include <thread>

#include "engine/base/error.h"

namespace lockstep::tools::bench {

std::string NcclRanks::refusal(const std::vector<engine::Device*>& devices) {
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const engine::DeviceId id = devices[rank]->id();
    if (id.kind != "cuda") return fmt::format("{} is not a GPU", to_string(id));
    for (std::size_t other = 0; other < rank; ++other)
      if (devices[other]->id() == id)
        return fmt::format("it takes one rank on each GPU, and ranks {} and {} are both on {}",
                           other, rank, to_string(id));
  }
  return {};
}

NcclRanks::NcclRanks(const std::vector<engine::Device*>& devices,
                     const strategies::VendorLibrary& library, std::chrono::milliseconds deadline)
    : bootstraps_(collectives::in_memory_bootstrap(std::vector<int>(devices.size(), 0), deadline)),
      communicators_(devices.size()) {
  for (engine::Device* device : devices) ops_.push_back(device->ops(engine::DType::kFloat32, {}));
  collectives::DeviceCommunicatorOptions options;
  options.deadline = deadline;
  try {
    on_each([&](std::size_t rank) {
      communicators_[rank] = library.open(*bootstraps_[rank], options);
    });
  } catch (const engine::Error&) {
    close();
    throw;
  }
}

NcclRanks::~NcclRanks() {
  close();
}

// Closes all communicators at once, because NCCL ends one only when all of its ranks do. An error
// here follows from an earlier error, which was reported.
void NcclRanks::close() noexcept {
  try {
    on_each([&](std::size_t rank) { communicators_[rank].reset(); });
  } catch (const engine::Error&) {
    return;
  }
}

void NcclRanks::on_each(const std::function<void(std::size_t)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < ops_.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        ops_[rank]->reductions_queue();  // selects its GPU for this thread
        body(rank);
      } catch (const engine::Error& error) {
        const std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
        bootstraps_[rank]->abandon(error);
      }
    });
  threads.clear();  // joins
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::tools::bench
