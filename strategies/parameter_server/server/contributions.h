// SPDX-License-Identifier: MIT
// Gradients of one step that wait for others': of each part, those of the first `needed` workers to
// come. With the last of them the part is complete, its gradients are taken out in the order of the
// workers, and what comes later is late. A worker gives one gradient for a part. All workers cut a
// step's shards into the same parts; a sparse shard is one part. Bookkeeping only: bytes are held
// by their owners. One thread at a time (the owner's lock).
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
    std::shared_ptr<const std::vector<std::uint64_t>> rows = {};  // of a sparse shard
  };
  struct Complete {
    ShardRange part = {};
    std::vector<Gradient> gradients = {};  // by worker
  };
  enum class What { kKept, kComplete, kLate, kRepeated };

  explicit Contributions(std::size_t needed) : needed_(needed) {}
  // Throws Error(kInvalid) naming both where a part of this step shares some elements with the
  // one given, and not all.
  void check(const ShardRange& part) const;
  // The part is checked. With kComplete the gradients are in `complete`.
  What offer(const ShardRange& part, Gradient gradient, Complete& complete);
  void next_step() { parts_.clear(); }
  std::size_t waiting() const;  // parts that some have given, and not enough

 private:
  struct Waiting {
    std::size_t end = 0;
    bool complete = false;
    std::vector<std::uint32_t> workers;  // who gave
    std::vector<Gradient> gradients;     // empty when complete
  };
  using Key = std::pair<std::uint32_t, std::size_t>;  // shard, begin
  std::size_t needed_ = 1;
  std::map<Key, Waiting> parts_;
};

}  // namespace lockstep::strategies
