// SPDX-License-Identifier: MIT
// The algorithms: pure functions from a request to a plan, the same on every rank. Any number of
// ranks and hosts, counts smaller than the number of ranks, and empty ranges are ordinary cases.
// Steps and bytes of each stand in collectives/README.md. Errors: Error(kInvalid) where an
// algorithm cannot serve a request (direct across hosts). X_same names the algorithm (registry.h)
// whose plan for a request is, step by step, that of X; empty: X's is its own. (It knows of no two
// that are the same for some Request::rotation alone.)
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::collectives {

struct Request {
  std::string name;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool mean = false;  // divide the sums by the number of ranks; not of integers
  Range subject;      // of `space`
  Space space = Space::kGradient;
  std::vector<int> host;  // of each rank
  // All ranks, as a ring is to go through each host (ring_order.h); empty: as they are numbered.
  std::vector<int> order = {};
  bool squares = false;  // leave sums of squares of the result in everybody's norms
  // The sums are gradients: each number is updated once, where its whole sum is first known, and
  // instead of sums the new weights (Space::kWeight) end everywhere. Plain sums only.
  bool update = false;
  // bfloat16: between hosts sums of float32, whole ones and parts, travel rounded; whole sums end
  // rounded everywhere, the same in all. Weights of an update travel as they are. On one host it
  // changes nothing. Plain sums only.
  std::optional<DType> wire = {};
  int rotation = 0;         // which rank has the first slice: another for each bucket
  int root = 0;             // of a broadcast: whose numbers
  std::size_t scratch = 0;  // where this plan's scratch begins, in elements
  // Algorithms with many messages in flight cut them to about so many bytes. One call of
  // Executor::progress adds as many, and a message under way is still in the cache when it is
  // added; half or twice as much fills no wire better.
  std::size_t chunk_bytes = std::size_t(256) << 10;
};

// Part `part` of `parts` nearly equal ones of `subject`, cut at engine::kBlock; may be empty.
Range slice(Range subject, int part, int parts);

// One host. Each rank owns a slice, reads it from all ranks, stores it into all: two passes over
// memory, the lower bound. Keeps rank order (a balanced tree).
Plan direct_all_reduce(const Request& request);
// Why direct cannot serve ranks on these hosts: "needs all ranks on one host ..."; empty where it
// can.
std::string direct_refusal(const std::vector<int>& host);
// The two halves of an update, for optimizers that need a norm first: sums of my slice (with
// squares told to all), then update of my slice and store into all.
Plan direct_reduce_scatter(const Request& request);
Plan direct_update_and_store(const Request& request);
// Everybody gets each slice from its owner, the rank that a direct reduce-scatter of the same
// request leaves it at.
Plan direct_all_gather(const Request& request);
// Everybody gets the numbers of rank `root`: each rank hands out a slice of them.
Plan direct_broadcast(const Request& request);

// One host. Every rank copies its numbers into its scratch and adds everything itself: one wait
// instead of two, and more memory moved; for few bytes. More than 256 KiB are direct. The same bits
// as direct. Scratch: one_shot_scratch elements from request.scratch, of this plan alone.
Plan one_shot_all_reduce(const Request& request);
std::size_t one_shot_scratch(const Request& request);
std::string_view one_shot_same(const Request& request);

// Any hosts. Reduce-scatter and all-gather round a ring in which the ranks of a host stand side by
// side, in the request's order: messages between hosts, plain reads within one. Bandwidth-optimal:
// 2 (n - 1) / n of the bytes over each link. Scratch: ring_scratch elements from request.scratch.
// Baidu 2017, after Patarasuk and Yuan 2009.
Plan ring_all_reduce(const Request& request);
std::size_t ring_scratch(const Request& request);
std::string_view ring_same(const Request& request);

// Any hosts. A logarithm of rounds. Range halved and doubled among all ranks; few bytes are sent
// whole (recursive doubling). Keeps rank order. Thakur, Rabenseifner and Gropp 2005.
Plan halving_doubling_all_reduce(const Request& request);
std::size_t halving_doubling_scratch(const Request& request);
std::string_view halving_doubling_same(const Request& request);

// Any hosts; on one they are direct. Every rank leads a slice: it adds that of all ranks of its
// host and stores it into all; between hosts the leaders of each slice form a ring, or halve and
// double. The wire carries 2 (H - 1) / H of the bytes for each of H hosts, which is the lower
// bound.
Plan hierarchical_all_reduce(const Request& request);
std::size_t hierarchical_scratch(const Request& request);
std::string_view hierarchical_same(const Request& request);
Plan hierarchical_halving_all_reduce(const Request& request);
std::size_t hierarchical_halving_scratch(const Request& request);
std::string_view hierarchical_halving_same(const Request& request);
// One leader a host does it all: the picture of 2018. As many bytes between hosts, fewer messages.
Plan leader_hierarchical_all_reduce(const Request& request);
std::size_t leader_hierarchical_scratch(const Request& request);
std::string_view leader_hierarchical_same(const Request& request);

// No talk at all: every rank updates everything from sums that it holds; or takes their squares.
Plan local_update(const Request& request);
Plan local_squares(const Request& request);

}  // namespace lockstep::collectives
