// SPDX-License-Identifier: MIT
// The plans that a benchmark of collectives runs: a collective in place and out of place, by one
// algorithm, and its roofline. Pure functions.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithms/request.h"
#include "collectives/cost/planner.h"
#include "collectives/plan/plan.h"

namespace lockstep::tools::bench {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kReduceScatter,
                                       Collective::kAllGather, Collective::kBroadcast};
const char* name(Collective collective);      // "all_reduce"
const char* mpi_name(Collective collective);  // "MPI_Allreduce"

// Describes the requested operation, which is the same for all sizes.
struct Task {
  Collective collective = Collective::kAllReduce;
  collectives::DType dtype = collectives::DType::kFloat32;
  collectives::ReduceOp op = collectives::ReduceOp::kSum;
  bool mean = false;
  bool threads = false;   // the ranks are threads of one process
  std::vector<int> host;  // host of each rank
  int ranks() const { return int(host.size()); }
  // Returns whether the collective reduces numbers instead of copying them.
  bool reduces() const {
    return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  }
  bool one_host() const;
  // Returns busbw / algbw: the bytes that cross the slowest link, or memory, per byte of the size
  // (NVIDIA, nccl-tests, PERFORMANCE.md).
  double bus_factor() const;
};

// Holds an algorithm for one size, and the reason for it.
struct Choice {
  std::string algorithm, reason;
  std::optional<double> predicted_us = {};
  bool chosen = false;  // the planner would choose it
};

// Returns the planner's choices for these sizes, in elements. Returns nothing if there is nothing
// to plan: one rank, or no all-reduce.
std::optional<collectives::Choices> planned(const Task& task, const collectives::Topology& topology,
                                            const std::vector<std::size_t>& counts);

// Returns the requested algorithms for one size, by name; "auto" is the planner's choice. `wanted`
// is a list of names separated by commas, "all" (all algorithms that can serve the task), or
// algorithms by size as in collectives/cost/size_rules.h. A size without a rule is "auto". Throws
// Error(kInvalid) for an unknown name, for one that cannot serve the task, with the reason, and for
// names and sizes in one list.
std::vector<std::string> asked(const Task& task, const std::string& wanted, std::size_t count);

// Returns the same with the planner's choice made, each algorithm once. The algorithm that "auto"
// or "all" finds has the planner's reason.
std::vector<Choice> choices(const Task& task, const std::string& wanted, std::size_t count,
                            const std::optional<collectives::Choices>& planned);

// Holds the stages of one step. A variant is some of its stages, started together.
struct Work {
  collectives::StepPlan plan = {};
  std::vector<int> in_place = {}, out_of_place = {}, roofline = {};  // empty: none
  std::size_t elements = 0, scratch = 0;                             // sizes of the two spaces
  std::size_t output = 0;  // offset of results out of place
};

// Returns the plans. In place they work on [0, count). Out of place the result is in [output,
// output + count). Reductions by *one_shot*, and large ones by *direct*, store there at once;
// everything else copies its input first. The roofline is direct without arrivals and waits: every
// rank reads its slice from all and stores it to all. It exists on one host only.
//
// To join works of one size and several algorithms into one step, append their plans: `stages` is
// the number of stages before, and `scratch` the elements of scratch that these use.
Work work(const Task& task, const std::string& algorithm, std::size_t count,
          std::size_t scratch = 0, int stages = 0);

// Returns the roofline between hosts, the time on the wire, in microseconds. Each of H hosts must
// send at least 2 (H - 1) / H of the bytes of an all-reduce, at `bytes_per_second`. Returns nothing
// on one host, for other collectives, and if the wire was not measured (0).
std::optional<double> wire_us(const Task& task, std::size_t count, double bytes_per_second);

// Returns the elements of both spaces of joined works together, on each rank. It is fast even for
// sizes that no memory holds.
std::size_t work_elements(const Task& task, const std::vector<std::string>& algorithms,
                          std::size_t count);

// Returns the all-reduces of a contest. `in_place` has a stage per name, in the same order, all
// over [0, count).
Work contest_work(const Task& task, const std::vector<std::string>& names, std::size_t count);
collectives::Plan in_place_plan(const Task& task, const std::string& algorithm, std::size_t count);

// Returns parts of [0, count) as the buckets of a step, each a stage in `in_place`.
Work bucket_work(const Task& task, const std::string& algorithm, std::size_t count, int buckets);

// Adds a bucket after the existing ones, which hold whole blocks.
void add_bucket(Work& work, const Task& task, const std::string& algorithm, std::size_t count);

// Selects how `count` elements are divided among the ranks.
enum class Shares {
  // lockstep's slices of whole blocks, each at its own offset.
  kSlices,
  // MPI's shares of one size, the last ones cut off. A reduce-scatter stores its share at offset 0.
  kEqual,
};

// Returns the elements of a kEqual share before the last ones are cut off.
std::size_t equal_share(const Task& task, std::size_t count);

// Returns the elements of `count` that a rank begins with, which may be none, or those of the
// result that it ends with. An all-gather makes `count` elements of a share of each rank; a
// broadcast sends those of rank 0.
collectives::Range input_range(const Task& task, std::size_t count, int rank,
                               Shares shares = Shares::kSlices);
collectives::Range result_range(const Task& task, std::size_t count, int rank,
                                Shares shares = Shares::kSlices);

}  // namespace lockstep::tools::bench
