// SPDX-License-Identifier: MIT
// An algorithm as data. A plan says what each rank does in one collective; it is made by a pure
// function (algorithms.h) and consumed by an executor, a verifier, a printer. Building one costs
// time and memory in proportion to its steps, not to its bytes. Plain values; no threads, no I/O.
//
// Each rank runs a few lanes side by side, each an ordered list of steps. Operands name memory as
// {rank, space, offset}: offsets are elements of the plan's dtype, absolute in the rank's space
// (norms: float64, one a block of the arena; norms of layers travel in no plan, and lie there as
// the executor likes). Memory of ranks of the same host can be read and written directly; other
// hosts are reached by messages.
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

enum class Action : std::uint8_t {
  kReduce,    // add `from` (all on my host), apply the epilogue, store into `to` (all on my host)
  kPostSend,  // begin to send from[0] (mine) to `peer`, on another host
  kPostReceive,  // begin to receive into to[0] (mine) from `peer`
  kWait,         // until the message posted by step `post` of this lane is through
  kArrive,       // my counter of this lane grows by one: what I wrote before can be seen
  kAwait,        // until each of `ranks` (on my host) arrived `phase` times in its lane `lane`
  kVendor,       // to[0] (mine) and that of all other ranks become their sum, by a vendor's library
};
std::string_view name(Action action);

struct Step {
  Action action = Action::kReduce;
  std::size_t count = 0;  // elements: reduce, send, receive, vendor
  Epilogue epilogue = Epilogue::kNone;
  double scale = 1;  // epilogue kScale
  // Send, receive: the type in which the message travels, where not the plan's: bfloat16 of a
  // float32 plan. The sender rounds, and keeps what it had.
  std::optional<DType> wire = {};
  std::vector<Operand> from = {}, to = {};
  int peer = -1;
  int post = -1;
  std::vector<int> ranks = {};
  int lane = 0, phase = 0;  // await; my own lanes too: that is how lanes join
  bool operator==(const Step&) const = default;
};
using Lane = std::vector<Step>;
inline constexpr int kMaxLanes = 16;  // of a rank in one plan

// The epilogue kUpdate of a reduce reads and writes more than its operands say: the weights of its
// own rank at the range of from[0], its slots there, and, where the rule needs a norm, all norms of
// its own rank. kSquares writes one number for each block of from[0]'s range into its own norms,
// and may read the weights of its own rank at that range: norms of layers are of both.
//
// Mirrors are equal where numbers travel in another type, too, since a plan rounds (kRound) what
// its rank keeps of a number that others have from a message.
struct Plan {
  std::string name;       // for people: "bucket 0 (dense2.bias dense2.weight): sum"
  std::string algorithm;  // "direct", "ring", "local"
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  bool mean = false;                     // the sums end divided by the number of ranks
  Space space = Space::kGradient;        // that it sums in, or takes sums from
  Range subject;                         // of that space
  std::vector<int> host;                 // of each rank
  std::vector<std::vector<Lane>> lanes;  // [rank][lane]
  // Not 0: in every second execution scratch operands lie so many elements further on. Others may
  // then read a rank's scratch when the plan has ended there; it is written again two executions
  // later. No other plan of the step uses that scratch.
  std::size_t alternate = 0;
  int ranks() const { return int(lanes.size()); }
};

// One plan of a step, and which plans of the same step it comes after (on the same rank).
struct Stage {
  Plan plan;
  std::vector<int> after;      // indices of earlier stages
  bool first_in_line = false;  // sums that a layer waits for run before all else
  // The host's own numbers: it adds them, also where a rank's other sums are queued on a device.
  // Float64 without an epilogue, in memory that the host reaches.
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

// The ranges that a rank updates with Epilogue::kUpdate, in the order of the plan: there its
// optimizer state lies.
std::vector<Range> owned(const Plan& plan, int rank);

// "bucket 0 (dense2.bias): sum (direct, 4096 bytes)": for errors.
std::string title(const Plan& plan);

// All steps as text. `hash` is of that text, of every stage, and is what ranks compare at the
// start.
std::string print(const Plan& plan);
std::string print(const StepPlan& step);
std::uint64_t hash(const StepPlan& step);

}  // namespace lockstep::collectives
