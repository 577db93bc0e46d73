// SPDX-License-Identifier: MIT
// A collective algorithm as data. A plan lists what each rank does in one collective. A pure
// function (algorithms.h) makes it; an executor, a verifier and a printer consume it. Building a
// plan costs time and memory in proportion to its steps, not to its bytes. Plans are plain values
// without threads or I/O.
//
// Each rank runs a few lanes in parallel; a lane is an ordered list of steps. Operands name memory
// as {rank, space, offset}. Offsets are elements of the plan's dtype, absolute in the rank's space.
// Norms are float64, one per block of the arena. No plan moves the norms of layers; the executor
// chooses their layout. Ranks of one host access each other's memory directly; messages reach other
// hosts.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/ops/reduce.h"
#include "engine/tensor/tensor.h"

namespace lockstep::collectives {

using engine::DType;
using engine::Epilogue;
using engine::Range;
using engine::ReduceOp;

enum class Space : std::uint8_t { kGradient, kWeight, kExchange, kScratch, kNorms };
inline constexpr int kSpaces = 5;
std::string_view name(Space space);

struct Operand {
  int rank = 0;
  Space space = Space::kGradient;
  std::size_t offset = 0;
  bool operator==(const Operand&) const = default;
};

// In sends and receives, from[0] and to[0] belong to the executing rank. kReduce and kAwait name
// only ranks of the same host.
enum class Action : std::uint8_t {
  kReduce,       // adds `from`, applies the epilogue, stores into `to`
  kPostSend,     // starts sending from[0] to `peer` on another host
  kPostReceive,  // starts receiving into to[0] from `peer`
  kWait,         // completes the message of this lane's step `post`
  kArrive,       // increments the lane's counter; publishes earlier writes
  kAwait,        // until `ranks` arrived `phase` times in their `lane`
  kVendor,       // sums to[0] over all ranks (vendor library)
};
std::string_view name(Action action);

struct Step {
  Action action = Action::kReduce;
  std::size_t count = 0;  // elements: reduce, send, receive, vendor
  Epilogue epilogue = Epilogue::kNone;
  double scale = 1;  // epilogue kScale
  // Type of the message in flight if it differs from the plan's: bfloat16 in a float32 plan. The
  // sender rounds a copy and keeps its own numbers.
  std::optional<DType> wire = {};
  std::vector<Operand> from = {}, to = {};
  int peer = -1;
  int post = -1;
  std::vector<int> ranks = {};
  int lane = 0, phase = 0;  // await; also joins the rank's own lanes
  bool operator==(const Step&) const = default;
};
using Lane = std::vector<Step>;
inline constexpr int kMaxLanes = 16;  // per rank and plan

// A reduce with epilogue kUpdate accesses more memory than its operands. At the range of from[0] it
// reads and writes the rank's weights and optimizer slots; if the rule needs a norm, it reads all
// norms of the rank. kSquares writes one number per block of from[0]'s range into the rank's norms.
// It may read the rank's weights at that range, since norms of layers cover gradients and weights.
//
// Replicas stay equal even if numbers travel in another type. A plan rounds (kRound) what its rank
// keeps of a number that other ranks receive in a message.
struct Plan {
  std::string name;       // for people: "bucket 0 (dense2.bias dense2.weight): sum"
  std::string algorithm;  // "direct", "ring", "local"
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool mean = false;                     // sums are divided by the number of ranks
  Space space = Space::kGradient;        // holds the summands or finished sums
  Range subject;                         // range in `space`
  std::vector<int> host;                 // one entry per rank
  std::vector<std::vector<Lane>> lanes;  // [rank][lane]
  // If not 0, scratch operands are shifted by this many elements in every second execution. Other
  // ranks may then read a rank's scratch after the plan has ended there. The rank overwrites it two
  // executions later. No other plan of the step uses that scratch.
  std::size_t alternate = 0;
  int ranks() const { return int(lanes.size()); }
};

// One plan of a step, with the plans that precede it on the same rank.
struct Stage {
  Plan plan;
  std::vector<int> after;      // indices of earlier stages
  bool first_in_line = false;  // runs first, since a layer waits for it
  // If true, the host executes the plan even if the rank's other sums are queued on a device. Such
  // a plan is float64 without an epilogue, in memory that the host can access.
  bool by_host = false;
};
using StepPlan = std::vector<Stage>;

template <class Of>
bool any_step(const Plan& plan, Of of) {
  for (const auto& lanes : plan.lanes)
    for (const Lane& lane : lanes)
      for (const Step& step : lane)
        if (of(step)) return true;
  return false;
}

// Returns the ranges that a rank updates with Epilogue::kUpdate, in plan order. The rank keeps its
// optimizer state for these ranges.
std::vector<Range> owned(const Plan& plan, int rank);

// Returns a title for error messages: "bucket 0 (dense2.bias): sum (direct, 4 KiB)".
std::string title(const Plan& plan);

// Returns all steps as text. `hash` hashes the text of all stages; ranks compare it at the start.
std::string print(const Plan& plan);
std::string print(const StepPlan& step);
std::uint64_t hash(const StepPlan& step);

}  // namespace lockstep::collectives
