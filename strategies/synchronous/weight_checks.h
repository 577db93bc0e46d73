// SPDX-License-Identifier: MIT
// Checksums of the weights that one replica computes with, so that mirrors that differ are noticed.
// They are taken when a weight has been read for the last time in a step, before an update may
// overwrite it, and are added to sums that are never reset. Mirrors that differed in one step have
// different sums from then on, even where a fused update has made their weights equal again.
//
// In memory of the host the check must be cheap beside the step: parameters are cut into pieces,
// and of a parameter that a step reads for little work some pieces are checked in each step, in
// turn. Owned by the mirror; the replica's thread uses it. Allocates nothing after construction.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/nn/graph.h"

namespace lockstep::strategies {

class WeightChecks {
 public:
  static constexpr std::size_t kPiece = std::size_t(1) << 14;  // elements
  static constexpr std::size_t kCycle = 16;                    // steps, at most, for all pieces
  // For so many examples a replica the check takes 1 to 3 % of a dense layer's time.
  static constexpr std::size_t kExamples = 256;

  // `examples` of a replica's step, the same on all ranks. Ops and graph outlive this.
  WeightChecks(engine::Ops& ops, const engine::Graph& graph, std::size_t examples);

  // Queues the checks of all weights before element `end` that this step has not queued yet.
  void add(const std::byte* weights, std::size_t end, std::int64_t step);
  void end_step() { next_ = 0; }
  // Queues a copy of the sums for the host, behind the last `add` of a step. The copies of two
  // steps are kept.
  void keep(std::int64_t step);

  // Of a step whose kernels are done: takes the copy, and returns a hash of all sums. Hashes are
  // whole numbers below 2^52.
  double take(std::int64_t step);
  // In so many steps every weight is checked.
  std::size_t cycle() const;
  // Of the copy taken last: a hash of each piece's sum, and the name of its parameter.
  std::size_t pieces() const { return ranges_.size(); }
  double hash_of(std::size_t piece) const;
  const std::string& parameter(std::size_t piece) const;

 private:
  void queue(const std::byte* weights, std::size_t begin, std::size_t end);

  engine::Ops& ops_;
  const engine::Graph& graph_;
  std::vector<engine::Range> ranges_;      // of the arena, ascending
  std::vector<std::size_t> parameters_;    // of each range, by index of the layout
  std::vector<std::size_t> cycle_, turn_;  // checked where step % cycle == turn
  std::vector<std::uint64_t> taken_;
  engine::Buffer device_ranges_, sums_;  // where kernels read and write them
  engine::Buffer copies_;                // shared: sums of even steps, and of odd ones
  std::size_t next_ = 0;                 // the first range that this step has not queued
};

}  // namespace lockstep::strategies
