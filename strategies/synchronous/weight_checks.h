// SPDX-License-Identifier: MIT
// Checksums of the weights that one replica computes with, to detect mirrors that differ. A weight
// is checked after its last read in a step, before an update may overwrite it. The checksums are
// added to sums that are never reset. Mirrors that differed in one step have different sums from
// then on, even if a fused update has made their weights equal again. Gradients that are wrong
// before they are summed are not found, nor is a wrong optimizer state of a fused update, since all
// mirrors get the same wrong weights.
//
// In host memory the check must be cheap compared to the step. Parameters are cut into pieces. For
// a parameter that a step reads for little work, each step checks only some pieces, in rotation.
// Owned by the mirror; only the replica's thread uses it. Allocates nothing after construction.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/nn/graph.h"

namespace lockstep::strategies {

class WeightChecks {
 public:
  static constexpr std::size_t kPiece = std::size_t(1) << 14;  // elements
  static constexpr std::size_t kCycle = 16;  // maximum steps until all pieces are checked
  // With this many examples per replica the check takes 1 to 3 % of a dense layer's time.
  static constexpr std::size_t kExamples = 256;

  // Takes the `examples` per replica and step, the same on all ranks. Ops and graph must outlive
  // this object.
  WeightChecks(engine::Ops& ops, const engine::Graph& graph, std::size_t examples);

  // Queues the checks of all weights before element `end` that this step has not queued yet.
  void add(const std::byte* weights, std::size_t end, std::int64_t step);
  void end_step() { next_ = 0; }
  // Queues a copy of the sums for the host, after the last `add` of a step. The copies of two steps
  // are kept.
  void keep(std::int64_t step);

  // Takes the copy of a step whose kernels are done, and returns a hash of all sums. Hashes are
  // integers below 2^52.
  double take(std::int64_t step);
  // Returns the number of steps in which every weight is checked.
  std::size_t cycle() const;
  // Describe the last copy that was taken: a hash of each piece's sum, and the name of its
  // parameter.
  std::size_t pieces() const { return ranges_.size(); }
  double hash_of(std::size_t piece) const;
  const std::string& parameter(std::size_t piece) const;

 private:
  void queue(const std::byte* weights, std::size_t begin, std::size_t end);

  engine::Ops& ops_;
  const engine::Graph& graph_;
  std::vector<engine::Range> ranges_;      // ranges of the arena, ascending
  std::vector<std::size_t> parameters_;    // by range: index in the layout
  std::vector<std::size_t> cycle_, turn_;  // checked if step % cycle == turn
  std::vector<std::uint64_t> taken_;
  engine::Buffer device_ranges_, sums_;  // memory of the kernels
  engine::Buffer copies_;                // shared: sums of even and odd steps
  std::size_t next_ = 0;                 // first range not queued in this step
};

}  // namespace lockstep::strategies
