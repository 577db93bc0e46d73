// SPDX-License-Identifier: MIT
// NCCL communicators of ranks that are threads of this process, each on a GPU of its own.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/run/device_communicator.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"
#include "strategies/synchronous/vendor_sums.h"

namespace lockstep::tools::bench {

class NcclRanks {
 public:
  // Returns why NCCL cannot sum over ranks on these devices; empty if it can.
  static std::string refusal(const std::vector<engine::Device*>& devices);

  // Opens the communicators. `devices`: one entry per rank; they outlive it. Throws the errors of
  // opening a communicator.
  NcclRanks(const std::vector<engine::Device*>& devices, const strategies::VendorLibrary& library,
            std::chrono::milliseconds deadline);
  ~NcclRanks();
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  // Queues the sum over all ranks on `stream`, in place. Each rank has a thread of its own, which
  // uses the GPU of that rank.
  void sum(int rank, std::byte* data, std::size_t count, engine::DType dtype, void* stream) const {
    communicators_[std::size_t(rank)]->all_reduce(data, count, dtype, stream);
  }

 private:
  void on_each(const std::function<void(std::size_t rank)>& body);
  void close() noexcept;

  std::vector<std::unique_ptr<collectives::Bootstrap>> bootstraps_;
  std::vector<std::unique_ptr<engine::Ops>> ops_;
  std::vector<std::unique_ptr<collectives::DeviceCommunicator>> communicators_;
};

}  // namespace lockstep::tools::bench
