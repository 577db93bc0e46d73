// SPDX-License-Identifier: MIT
// Replicas on devices whose model is one parameter of so many numbers, with nothing to compute:
// what a step's sums and updates cost by themselves, made by the same strategy, plans and kernels
// as a training step's. Gradients are small whole numbers, other ones on each replica, so that
// sums of up to 16 replicas are exact in every type.
//
// One thread owns it; each replica has a thread of its own inside. Memory: of a replica the
// parameter, its gradient and the optimizer's state, and its gradient once more. The devices
// outlive it. Throws Error(kMemory) where that does not fit, and what a strategy throws.
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
  std::vector<engine::Device*> devices = {};  // one entry a replica
  std::size_t elements = 0;
  engine::DType dtype = engine::DType::kFloat32;
  engine::UpdateRule rule = {};
  std::string algorithm = "direct";
  strategies::Update update = strategies::Update::kAutomatic;
  std::size_t bucket_bytes = 0;               // 0: as steps have it; enough for all: one bucket
  std::chrono::milliseconds deadline{60000};  // of every wait for another replica
};

// Sums of more replicas would not be exact in 16 bits.
constexpr std::size_t kMostReplicas = 16;

class FlatReplicas {
 public:
  explicit FlatReplicas(const FlatOptions& options);

  // Returns the seconds of one all-reduce of all gradients, of `calls` that follow each other, from
  // when all replicas have met with idle devices until the last one's is idle again. The sums are
  // made in place; gradients are written anew before, untimed. Requires a separate update and one
  // bucket.
  double all_reduce(int calls);
  // The same by NCCL, in the same memory. `nccl` has the same ranks.
  double all_reduce(int calls, const NcclRanks& nccl);
  // The same of the sums and updates of all buckets. With a separate update the sums of a call are
  // the gradients of the next.
  double update(int calls);
  // As many calls as keep float32 and bfloat16 finite; float16 may become infinite.
  int most_calls() const;

  // Returns how many elements, on all replicas together, differ from the exact sums. Call it after
  // an all_reduce of one call.
  std::size_t wrong_sums();
  // Returns a checksum of the weights. Throws Error(kInvalid) where replicas differ.
  std::uint64_t same_weights();

  // Bytes that sums with the updates inside must read and write at least, over all replicas.
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
  std::vector<engine::Buffer> fresh_;  // gradients, by rank
  std::int64_t step_ = 0;
};

}  // namespace lockstep::tools::bench
