// SPDX-License-Identifier: MIT
// What a benchmark of collectives runs, as plans: a collective in place and out of place, by one
// algorithm, and its roofline. Pure functions.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithms/algorithms.h"
#include "collectives/cost/planner.h"
#include "collectives/plan/plan.h"

namespace lockstep::tools::bench {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kReduceScatter,
                                       Collective::kAllGather, Collective::kBroadcast};
const char* name(Collective collective);      // "all_reduce"
const char* mpi_name(Collective collective);  // what MPI calls its own

// What is asked for: the same for all sizes.
struct Task {
  Collective collective = Collective::kAllReduce;
  collectives::DType dtype = collectives::DType::kFloat32;
  collectives::ReduceOp op = collectives::ReduceOp::kSum;
  bool mean = false;
  std::vector<int> host;  // of each rank
  int ranks() const { return int(host.size()); }
  // Whether numbers are reduced at all, and not handed out as they are.
  bool reduces() const {
    return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  }
  bool one_host() const;
  // busbw / algbw: what crosses the slowest link, or memory, for each byte; NVIDIA, nccl-tests,
  // PERFORMANCE.md.
  double bus_factor() const;
};

// One algorithm for one size, and why it is this one.
struct Choice {
  std::string algorithm, reason;
  std::optional<double> predicted_us = {};
  bool chosen = false;  // the planner would choose it
};

// The planner's choices for these sizes, in elements; none where there is nothing to plan: one
// rank, or no all-reduce.
std::optional<collectives::Choices> planned(const Task& task, const collectives::Topology& topology,
                                            const std::vector<std::size_t>& counts);

// What somebody asks for, for one size: names of algorithms, of which "auto" is the planner's
// choice. `wanted`: names with commas between, or "all" (all that can serve the task); or
// algorithms by size as collectives/cost/size_rules.h reads them, where a size that none names is
// "auto". Throws Error(kInvalid) for an unknown name, for one that cannot serve the task, saying
// why, and for names and sizes in one list.
std::vector<std::string> asked(const Task& task, const std::string& wanted, std::size_t count);

// The same with the planner's choice made, each algorithm once. Why it is the planner's choice is
// said of the one that "auto" and "all" find.
std::vector<Choice> choices(const Task& task, const std::string& wanted, std::size_t count,
                            const std::optional<collectives::Choices>& planned);

// Stages of one step: each variant is some of them, started together.
struct Work {
  collectives::StepPlan plan = {};
  std::vector<int> in_place = {}, out_of_place = {}, roofline = {};  // empty: there is none
  std::size_t elements = 0, scratch = 0;                             // of the two spaces
  std::size_t output = 0;  // where results out of place begin
};

// In place on [0, count). Out of place to [output, output + count): reductions by *direct* and
// *one_shot* store there at once, everything else copies its input first. The roofline is direct
// without its arrivals and waits: every rank reads its slice from all and stores it to all, and
// nobody waits; on one host only.
Work work(const Task& task, const std::string& algorithm, std::size_t count);

// Between hosts the roofline is the wire: what each of H hosts at least has to send of an
// all-reduce, 2 (H - 1) / H of its bytes, at so many bytes a second. Microseconds; none on one
// host, of other collectives, and where nobody has measured the wire (0).
std::optional<double> wire_us(const Task& task, std::size_t count, double bytes_per_second);

// Elements of both spaces together, of `work` on each rank; takes no time, also where no memory
// would hold them.
std::size_t work_elements(const Task& task, const std::string& algorithm, std::size_t count);

// The all-reduces of a contest: `in_place` has a stage for each name, in the same order, all over
// [0, count).
Work contest_work(const Task& task, const std::vector<std::string>& names, std::size_t count);
collectives::Plan in_place_plan(const Task& task, const std::string& algorithm, std::size_t count);

// Parts of [0, count) as buckets of a step would be, a stage each in `in_place`.
Work bucket_work(const Task& task, const std::string& algorithm, std::size_t count, int buckets);

// One bucket more behind those that are there, which hold whole blocks.
void add_bucket(Work& work, const Task& task, const std::string& algorithm, std::size_t count);

// How `count` elements are shared among the ranks.
enum class Shares {
  kSlices,  // lockstep's, of whole blocks: each lies where it lies among all
  kEqual,   // MPI's, of one size, the last ones cut off; the one that a reduce-scatter makes lies
            // first
};

// Of a share of kEqual, cut off or not.
std::size_t equal_share(const Task& task, std::size_t count);

// Of `count` elements those that a rank begins with, which may be none, and those of the result
// that it ends with: an all-gather makes `count` of a share of each rank, a broadcast hands out
// those of rank 0.
collectives::Range input_range(const Task& task, std::size_t count, int rank,
                               Shares shares = Shares::kSlices);
collectives::Range result_range(const Task& task, std::size_t count, int rank,
                                Shares shares = Shares::kSlices);

}  // namespace lockstep::tools::bench
