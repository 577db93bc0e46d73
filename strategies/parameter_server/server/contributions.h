// SPDX-License-Identifier: MIT
// Gradients of one synchronous step that wait for other workers. Each part needs the gradients of
// the first `needed` workers. The last of them completes the part, and its gradients are taken out
// in the order of the workers; later gradients are late. A worker gives one gradient per part. All
// workers cut a step's shards into the same parts; a sparse shard is one part. A worker that is
// killed in the middle of its pushes and restarted computes the rest from weights that may contain
// this step's update of other parts, so the bits then differ from those of an undisturbed run.
// Bookkeeping only: the owners hold the bytes. Not thread-safe (the owner's lock).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "strategies/parameter_server/server/job_spec.h"

namespace lockstep::strategies {

class Contributions {
 public:
  struct Gradient {
    std::uint32_t worker = 0;
    double rate = 0;
    std::shared_ptr<const std::byte> values = {};
    std::shared_ptr<const std::vector<std::uint64_t>> rows = {};  // rows of a sparse shard
  };
  struct Complete {
    ShardRange part = {};
    std::vector<Gradient> gradients = {};  // by worker
  };
  enum class What { kKept, kComplete, kLate, kRepeated };

  explicit Contributions(std::size_t needed) : needed_(needed) {}
  // Throws Error(kInvalid) with both parts if the given part overlaps another part of this step
  // without being equal to it.
  void check(const ShardRange& part) const;
  // Adds a gradient for a checked part. If it returns kComplete, `complete` has the gradients.
  What offer(const ShardRange& part, Gradient gradient, Complete& complete);
  void next_step() { parts_.clear(); }
  std::size_t waiting() const;  // parts with too few gradients

 private:
  struct Waiting {
    std::size_t end = 0;
    bool complete = false;
    std::vector<std::uint32_t> workers;  // workers that gave a gradient
    std::vector<Gradient> gradients;     // empty when complete
  };
  using Key = std::pair<std::uint32_t, std::size_t>;  // shard, begin
  std::size_t needed_ = 1;
  std::map<Key, Waiting> parts_;
};

}  // namespace lockstep::strategies
