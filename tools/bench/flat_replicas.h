// SPDX-License-Identifier: MIT
// Replicas on devices whose model is a single parameter without computation. They measure the sums
// and updates of a step alone, with the strategy, plans and kernels of a training step. Gradients
// are small whole numbers that differ between replicas, so sums of up to 16 replicas are exact in
// every dtype.
//
// One thread owns it; each replica has a thread of its own inside. Memory per replica: the
// parameter, its gradient, the optimizer state, and a second copy of the gradient. The devices
// outlive it. Throws Error(kMemory) if that does not fit, and the errors of the strategy.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/update_rule.h"
#include "strategies/synchronous/mirrored.h"
#include "tools/bench/nccl_ranks.h"

namespace lockstep::tools::bench {

struct FlatOptions {
  std::vector<engine::Device*> devices = {};  // one entry per replica
  std::size_t elements = 0;
  engine::DType dtype = engine::DType::kFloat32;
  engine::UpdateRule rule = {};
  std::string algorithm = "direct";
  strategies::Update update = strategies::Update::kAutomatic;
  // 0: as in training steps. A limit above the size of the gradient makes one bucket.
  std::size_t bucket_bytes = 0;
  std::chrono::milliseconds deadline{60000};  // per wait for another replica
};

// Most replicas, because sums of more would not be exact in 16 bits.
constexpr std::size_t kMostReplicas = 16;

class FlatReplicas {
 public:
  explicit FlatReplicas(const FlatOptions& options);

  // Returns the seconds of one of `calls` consecutive all-reduces of all gradients. The clock
  // starts when all replicas have met with idle devices, and stops when the last device is idle
  // again. Sums are in place; gradients are written anew before, untimed. Requires a separate
  // update and one bucket.
  double all_reduce(int calls);
  // Does the same with NCCL, in the same memory. `nccl` has the same ranks.
  double all_reduce(int calls, const NcclRanks& nccl);
  // Does the same for the sums and updates of all buckets. With a separate update, the sums of a
  // call are the gradients of the next call.
  double update(int calls);
  // Returns how many calls keep float32 and bfloat16 finite; float16 may become infinite.
  int most_calls() const;

  // Returns how many elements, on all replicas together, differ from the exact sums. Call it after
  // an all_reduce of one call.
  std::size_t wrong_sums();
  // Returns a checksum of the weights. Throws Error(kInvalid) if replicas differ.
  std::uint64_t same_weights();

  // Returns the least bytes that fused sums and updates read and write, over all replicas.
  double fused_bytes() const;
  std::size_t buckets() const { return strategy_.step().buckets.size(); }
  std::string algorithm() const { return strategy_.algorithm(); }

 private:
  using OfReplica = std::function<void(strategies::Mirror&)>;
  double timed(const OfReplica& calls);
  void write_gradients(strategies::Mirror& mirror);
  double replicas() const { return double(options_.devices.size()); }

  FlatOptions options_;
  strategies::Mirrored strategy_;
  std::vector<engine::Buffer> fresh_;  // initial gradients by rank
  std::int64_t step_ = 0;
};

}  // namespace lockstep::tools::bench
