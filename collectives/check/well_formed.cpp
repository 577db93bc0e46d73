// SPDX-License-Identifier: MIT
#include "collectives/check/well_formed.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>

namespace lockstep::collectives {
namespace {

bool holds_norms(const Operand& operand) {
  return operand.space == Space::kNorms;
}

class Form {
 public:
  Form(const Plan& plan, int rank, int lane)
      : plan_(plan), rank_(rank), lane_(plan.lanes[std::size_t(rank)][std::size_t(lane)]) {}

  // Returns what is wrong with a step, or an empty string.
  std::string operator()(std::size_t index) {
    const Step& step = lane_[index];
    for (const auto* operands : {&step.from, &step.to})
      for (const Operand& o : *operands) {
        if (!exists(o.rank)) return "an operand of a rank that is not there";
        if (o.rank != rank_ && (host(o.rank) != host(rank_))) return "memory of another host";
      }
    switch (step.action) {
      case Action::kReduce:
        return reduce(step);
      case Action::kPostSend:
      case Action::kPostReceive:
        return post(index, step);
      case Action::kWait:
        return wait(step);
      case Action::kArrive:
        return {};
      case Action::kAwait:
        return await(step);
      case Action::kVendor:
        if (step.count == 0 || step.to.size() != 1 || !step.from.empty() ||
            step.to[0].rank != rank_)
          return "a vendor's sum of other than numbers of its own rank";
        return {};
    }
    return "an action that is not there";
  }
  std::string at_end() const {
    if (std::find(open_.begin(), open_.end(), true) == open_.end()) return {};
    return "a message is posted and never waited for";
  }

 private:
  bool exists(int rank) const { return rank >= 0 && rank < plan_.ranks(); }
  int host(int rank) const { return plan_.host[std::size_t(rank)]; }

  // Returns whether some of the step's operands overlap without being equal.
  bool overlap_in_part(const Step& step) const {
    std::vector<Operand> all = step.from;
    all.insert(all.end(), step.to.begin(), step.to.end());
    if (step.epilogue == Epilogue::kUpdate)
      all.push_back({rank_, Space::kWeight, step.from[0].offset});
    std::sort(all.begin(), all.end(), [](const Operand& a, const Operand& b) {
      return std::tie(a.rank, a.space, a.offset) < std::tie(b.rank, b.space, b.offset);
    });
    return std::adjacent_find(all.begin(), all.end(), [&](const Operand& a, const Operand& b) {
             return a.rank == b.rank && a.space == b.space && a.offset != b.offset &&
                    b.offset - a.offset < step.count;
           }) != all.end();
  }
  std::string reduce(const Step& step) const {
    if (step.count == 0) return "a reduction of nothing";
    if (step.from.empty()) return "a reduction without sources";
    if (step.to.empty() && step.epilogue != Epilogue::kSquares) return "a reduction into nowhere";
    const auto norms = std::count_if(step.from.begin(), step.from.end(), holds_norms) +
                       std::count_if(step.to.begin(), step.to.end(), holds_norms);
    if (norms != 0 && std::size_t(norms) != step.from.size() + step.to.size())
      return "norms and other numbers in one reduction";
    if (norms != 0 && step.epilogue != Epilogue::kNone) return "an epilogue over norms";
    if (step.epilogue == Epilogue::kRound && plan_.dtype != DType::kFloat32)
      return "numbers rounded that are not float32";
    if (step.wire) return "a reduction in the type of a message";
    if (overlap_in_part(step)) return "operands that overlap in part";
    return {};
  }
  std::string post(std::size_t index, const Step& step) {
    const auto& operands = step.action == Action::kPostSend ? step.from : step.to;
    if (step.count == 0) return "a message of nothing";
    if (operands.size() != 1 || step.from.size() + step.to.size() != 1)
      return "a message with other than one operand";
    if (operands[0].rank != rank_) return "a message from or into the memory of another rank";
    if (!exists(step.peer)) return "a message with a rank that is not there";
    if (host(step.peer) == host(rank_)) return "a message within a host";
    if (step.wire && (plan_.dtype != DType::kFloat32 || *step.wire != DType::kBFloat16))
      return "a message of another type that is not float32 as bfloat16";
    open_.resize(lane_.size());
    open_[index] = true;
    return {};
  }
  std::string wait(const Step& step) {
    if (step.post < 0 || std::size_t(step.post) >= open_.size() || !open_[std::size_t(step.post)])
      return "a wait for no message";
    open_[std::size_t(step.post)] = false;
    return {};
  }
  std::string await(const Step& step) const {
    for (const int rank : step.ranks) {
      if (!exists(rank)) return "an await of a rank that is not there";
      if (host(rank) != host(rank_)) return "an await of a rank of another host";
      if (step.lane < 0 || std::size_t(step.lane) >= plan_.lanes[std::size_t(rank)].size())
        return "an await of a lane that is not there";
    }
    return {};
  }

  const Plan& plan_;
  int rank_;
  const Lane& lane_;
  std::vector<bool> open_;  // posts without a wait so far
};

// Holds the range of scratch bytes that a plan accesses on any rank, in any execution.
struct Touched {
  std::size_t begin = std::size_t(-1), end = 0;
  bool overlaps(const Touched& other) const { return begin < other.end && other.begin < end; }
};

Touched scratch(const Plan& plan) {
  const std::size_t width = engine::size_of(plan.dtype);
  Touched touched;
  for (const auto& lanes : plan.lanes)
    for (const Lane& lane : lanes)
      for (const Step& step : lane)
        for (const auto* operands : {&step.from, &step.to})
          for (const Operand& o : *operands) {
            if (o.space != Space::kScratch) continue;
            touched.begin = std::min(touched.begin, o.offset * width);
            touched.end = std::max(touched.end, (o.offset + step.count + plan.alternate) * width);
          }
  return touched;
}

// Returns an error if other plans use scratch that alternates, or if it overlaps in two consecutive
// executions. Other ranks may read such scratch when its plan has ended.
std::string alternation(const StepPlan& step) {
  for (const Stage& stage : step) {
    const Plan& plan = stage.plan;
    const Touched mine = scratch(plan);
    if (plan.alternate == 0 || mine.end == 0) continue;
    if (mine.end - mine.begin > 2 * plan.alternate * engine::size_of(plan.dtype))
      return "scratch of two executions overlaps in plan " + plan.name;
    for (const Stage& other : step)
      if (&other != &stage && mine.overlaps(scratch(other.plan)))
        return fmt::format("plan {} uses the scratch of plan {}, which others may still read",
                           other.plan.name, plan.name);
  }
  return {};
}

std::string malformed_plan(const Plan& plan) {
  if (plan.host.size() != plan.lanes.size())
    return "not as many hosts as ranks in plan " + plan.name;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const auto& lanes = plan.lanes[std::size_t(rank)];
    if (lanes.size() > std::size_t(kMaxLanes))
      return fmt::format("more than {} lanes in plan {}, rank {}", kMaxLanes, plan.name, rank);
    for (int lane = 0; lane < int(lanes.size()); ++lane) {
      Form form(plan, rank, lane);
      const std::size_t steps = lanes[std::size_t(lane)].size();
      for (std::size_t step = 0; step < steps; ++step)
        if (const std::string wrong = form(step); !wrong.empty())
          return wrong + ": " + place_of(plan, rank, lane, step);
      if (const std::string wrong = form.at_end(); !wrong.empty())
        return wrong + ": " + place_of(plan, rank, lane, steps);
    }
  }
  return {};
}

}  // namespace

std::string place_of(const Plan& plan, int rank, int lane, std::size_t step) {
  const Lane& steps = plan.lanes[std::size_t(rank)][std::size_t(lane)];
  return fmt::format("plan {}, rank {} lane {} step {} ({})", plan.name, rank, lane, step,
                     step < steps.size() ? name(steps[step].action) : "its end");
}

std::string malformed(const StepPlan& step) {
  for (std::size_t i = 0; i < step.size(); ++i) {
    const Plan& plan = step[i].plan;
    if (plan.ranks() == 0) return "no ranks in plan " + plan.name;
    if (plan.host != step[0].plan.host)
      return fmt::format("plans {} and {} are of other ranks or hosts", step[0].plan.name,
                         plan.name);
    for (const int earlier : step[i].after)
      if (earlier < 0 || std::size_t(earlier) >= i)
        return fmt::format("plan {} comes after stage {}, which is not an earlier one", plan.name,
                           earlier);
    if (std::string wrong = malformed_plan(plan); !wrong.empty()) return wrong;
  }
  return alternation(step);
}

}  // namespace lockstep::collectives
