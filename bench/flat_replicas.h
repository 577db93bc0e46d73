// SPDX-License-Identifier: MIT
// Replicas on one device whose model is one parameter of so many numbers, with nothing to compute:
// what a step's sums and updates cost by themselves, made by the same strategy, plans and kernels
// as a training step's. Gradients are small whole numbers, other ones on each replica, so that
// sums of up to 16 replicas are exact in every type.
//
// One thread owns it; each replica has a thread of its own inside. Memory: of a replica the
// parameter, its gradient and the optimizer's state, and its gradient once more. The device
// outlives it. Throws Error(kMemory) where that does not fit, and what a strategy throws.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/update_rule.h"
#include "strategies/mirrored.h"

namespace lockstep::bench {

struct FlatOptions {
  engine::Device* device = nullptr;
  int replicas = 1;
  std::size_t elements = 0;
  engine::DType dtype = engine::DType::kFloat32;
  engine::UpdateRule rule = {};
  std::string update = "auto";   // apart, fused
  std::size_t bucket_bytes = 0;  // 0: as steps have it
};

class FlatReplicas {
 public:
  explicit FlatReplicas(const FlatOptions& options);

  // Seconds of one all-reduce of all gradients, of so many, one behind the other: from when all
  // replicas met with idle devices until the last one's is idle again. In place: where the update
  // is apart and there is one bucket. Gradients are written anew before, untimed.
  double all_reduce(int calls);
  // The same of the sums and updates of all buckets. Apart, the sums of a call are the gradients of
  // the next.
  double update(int calls);
  // As many calls as keep float32, and bfloat16, finite.
  int most_calls() const;

  // Makes one all-reduce, and compares every element on every replica with the sum that it should
  // be. Throws Error(kInvalid) that names the first wrong one.
  void check_sums();
  // Throws Error(kInvalid) where replicas differ; a checksum of what they agree on.
  std::uint64_t same_gradients();
  std::uint64_t same_weights();

  // Bytes that must be read and written at least, over all replicas: by an all-reduce of n replicas
  // each gradient is read and each sum written once; by sums with the updates inside.
  double all_reduce_bytes() const;
  double fused_bytes() const;
  std::size_t buckets() const { return strategy_.step().buckets.size(); }
  std::string algorithm() const { return strategy_.algorithm(); }

 private:
  template <class Calls>
  double timed(const Calls& calls);
  void write_gradients(strategies::Mirror& mirror);
  std::uint64_t same(collectives::Space space, const char* what);
  static std::size_t bytes_of(const FlatOptions& options);

  FlatOptions options_;
  strategies::Mirrored strategy_;
  std::vector<engine::Buffer> fresh_;  // gradients, by rank
  std::int64_t step_ = 0;
};

}  // namespace lockstep::bench
