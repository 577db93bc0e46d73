// SPDX-License-Identifier: MIT
// Runs all lanes of all ranks of all stages symbolically. Counters only grow and messages are first
// in, first out. So every order of execution gives the same values, and one run is enough. Vector
// clocks find races. A thread of these clocks is a lane, a message in flight, or a rank's computing
// thread. A message reads its source or writes its target at any time from its post to its wait.
// The computing thread wrote the inputs and read the weights before the step, and only the rank's
// own lanes know this. Two accesses of one cell must be ordered if one of them is a write.
#include "collectives/check/verifier.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "collectives/check/symbolic_lanes.h"
#include "collectives/check/symbolic_memory.h"
#include "collectives/check/vector_clock.h"
#include "collectives/check/well_formed.h"
#include "collectives/plan/repetition.h"

namespace lockstep::collectives {
namespace {

class Verification {
 public:
  Verification(const StepPlan& step, Space result)
      : step_(step), result_(result), ranks_(step[0].plan.ranks()) {
    for (int rank = 0; rank < ranks_; ++rank) computing_.push_back(new_thread(-1));
    for (int stage = 0; stage < int(step.size()); ++stage) {
      const Plan& plan = step[std::size_t(stage)].plan;
      if (any_step(plan, [](const Step& s) { return s.epilogue == Epilogue::kSquares; }))
        squared_.push_back(plan.subject);
      by_rank_.emplace_back(std::size_t(ranks_));
      for (int rank = 0; rank < ranks_; ++rank) {
        fill(plan, rank);
        for (int lane = 0; lane < int(plan.lanes[std::size_t(rank)].size()); ++lane) {
          Runner& runner = runners_.emplace_back();
          runner.stage = stage, runner.rank = rank, runner.lane = lane;
          runner.thread = new_thread(stage);
          by_rank_.back()[std::size_t(rank)].push_back(&runner);
        }
      }
    }
  }

  std::string operator()(Goal goal) {
    for (bool moved = true; moved && error_.empty();) {
      moved = false;
      for (Runner& runner : runners_)
        while (error_.empty() && advance(runner)) moved = true;
    }
    if (error_.empty()) check_stuck();
    if (error_.empty()) check_ends();
    if (error_.empty()) check_goal(goal);
    return error_;
  }

 private:
  const Plan& plan(int stage) const { return step_[std::size_t(stage)].plan; }
  const Lane& lane(const Runner& r) const {
    return plan(r.stage).lanes[std::size_t(r.rank)][std::size_t(r.lane)];
  }
  bool ended(const Runner& r) const { return r.begun && r.at == lane(r).size(); }
  int new_thread(int stage) {
    stage_of_thread_.push_back(stage);
    return int(stage_of_thread_.size()) - 1;
  }
  int message_thread(Runner& r) {
    if (r.free_threads.empty()) return new_thread(r.stage);
    const int thread = r.free_threads.back();
    r.free_threads.pop_back();
    return thread;
  }

  void fail(const Runner& r, std::string_view why) {
    if (error_.empty())
      error_ = fmt::format("{}: {}", why, place_of(plan(r.stage), r.rank, r.lane, r.at));
  }

  // Defines the rank's memory at the beginning of the step; its computing thread accessed all of
  // it.
  void fill(const Plan& p, int rank) {
    const std::size_t own = std::size_t(rank);
    const Stamp stamp{computing_[own], 1};
    const auto begin = [&](Space where, auto&& change) {
      const Stretch all = stretch({rank, where, p.subject.begin}, p.subject.size(), p.dtype);
      for (const auto& piece : memory_.pieces({all})) {
        Cell& cell = memory_.cell(all, piece);
        if (cell.defined) continue;
        cell.defined = true;
        cell.value.contributions.assign(std::size_t(ranks_), 0);
        change(cell);
      }
    };
    begin(p.space, [&](Cell& cell) {
      cell.value.contributions[own] = 1, cell.value.bits = std::uint64_t(own) + 1;
      cell.writer = stamp;
    });
    if (any_step(p, [](const Step& s) {
          return s.epilogue == Epilogue::kUpdate || s.epilogue == Epilogue::kSquares;
        }))
      begin(Space::kWeight, [&](Cell& cell) { cell.readers = {stamp}; });
  }

  const Value& read(const Runner& r, Cell& cell, Stamp by, const VectorClock& now) {
    if (!cell.defined) fail(r, "read before write");
    if (!now.knows(cell.writer)) fail(r, "race: read of what another is writing");
    std::erase_if(cell.readers, [&](Stamp s) { return s.thread == by.thread; });
    cell.readers.push_back(by);
    return cell.value;
  }
  void write(const Runner& r, Cell& cell, Value value, Stamp by, const VectorClock& now) {
    if (!now.knows(cell.writer)) fail(r, "race: two writes");
    for (const Stamp s : cell.readers)
      if (!now.knows(s) && !(s.thread == by.thread && s.time == by.time))
        fail(r, "race: write of what another is reading");
    cell = {true, std::move(value), by, {}};
  }

  // Begins a lane if the stages before it have ended on this rank. Returns whether it began.
  bool begin(Runner& r) {
    for (const int earlier : step_[std::size_t(r.stage)].after)
      for (const Runner* o : by_rank_[std::size_t(earlier)][std::size_t(r.rank)])
        if (!ended(*o)) return false;
    r.clock.tick(computing_[std::size_t(r.rank)]);
    for (const int earlier : step_[std::size_t(r.stage)].after)
      for (const Runner* o : by_rank_[std::size_t(earlier)][std::size_t(r.rank)])
        r.clock.join(o->clock);
    r.clock.tick(r.thread);
    return r.begun = true;
  }

  bool advance(Runner& r) {
    if (!r.begun) return begin(r);
    if (r.at == lane(r).size()) return false;
    const Step& s = lane(r)[r.at];
    const std::array<int, 3> counter{r.stage, r.rank, r.lane};
    switch (s.action) {
      case Action::kReduce:
        reduce(r, s);
        break;
      case Action::kPostSend:
        post_send(r, s);
        break;
      case Action::kPostReceive: {
        Post& post = r.posts[int(r.at)];
        post.thread = message_thread(r);
        post.clock = r.clock;
        post.number = wire_[{r.stage, s.peer, r.rank, r.lane}].receives++;
        break;
      }
      case Action::kWait:
        if (!wait(r, s)) return false;
        break;
      case Action::kArrive:
        arrivals_[counter].push_back(r.clock);
        break;
      case Action::kAwait:
        for (const int rank : s.ranks)
          if (int(arrivals_[{r.stage, rank, s.lane}].size()) < s.phase) return false;
        for (const int rank : s.ranks)
          if (s.phase > 0)
            r.clock.join(arrivals_[{r.stage, rank, s.lane}][std::size_t(s.phase) - 1]);
        break;
      case Action::kVendor:
        if (!vendor(r)) return false;
        break;
    }
    ++r.at;
    r.clock.tick(r.thread);
    return true;
  }

  void reduce(Runner& r, const Step& s) {
    const DType dtype = plan(r.stage).dtype;
    const ReduceOp op = plan(r.stage).op;
    const Stamp me{r.thread, r.clock.at(r.thread)};
    std::vector<Stretch> from, to, all;
    for (const Operand& o : s.from) from.push_back(stretch(o, s.count, dtype));
    for (const Operand& o : s.to) to.push_back(stretch(o, s.count, dtype));
    const Range range{s.from[0].offset, s.from[0].offset + s.count};
    const Stretch weight = stretch({r.rank, Space::kWeight, range.begin}, s.count, dtype);
    all = from;
    all.insert(all.end(), to.begin(), to.end());
    if (s.epilogue == Epilogue::kUpdate) read_norms(r, me);
    if (s.epilogue == Epilogue::kUpdate || s.epilogue == Epilogue::kSquares) all.push_back(weight);
    for (const auto& piece : memory_.pieces(all)) {
      Value sum;
      sum.contributions.assign(std::size_t(ranks_), 0);
      std::vector<std::uint64_t> bits;
      for (std::size_t i = 0; i < from.size(); ++i) {
        const Value& value = read(r, memory_.cell(from[i], piece), me, r.clock);
        bits.push_back(value.bits), sum.narrow = value.narrow;
        const std::ptrdiff_t home = value.moved + std::ptrdiff_t(from[i].begin);
        if (i > 0 && home != sum.moved) fail(r, "sum of numbers of different places");
        sum.moved = home;
        if (value.updates && (from.size() > 1 || s.epilogue != Epilogue::kNone))
          fail(r, "sum of new weights");
        if (i > 0 && (value.scale != sum.scale || value.scaled != sum.scaled))
          fail(r, "sum of means and sums");
        if (from.size() > 1 && value.op.value_or(op) != op)
          fail(r, "numbers that another operation has joined");
        sum.updates |= value.updates, sum.scale = value.scale, sum.scaled = value.scaled;
        sum.op = from.size() > 1 ? op : value.op;
        for (std::size_t c = 0; c < value.contributions.size(); ++c)
          sum.contributions[c] += value.contributions[c];
      }
      sum.join(std::move(bits));
      if (s.epilogue == Epilogue::kRound) sum.round();
      if (s.epilogue != Epilogue::kNone && s.epilogue != Epilogue::kRound && !sum.whole())
        fail(r, fmt::format("{} an incomplete or doubled sum",
                            s.epilogue == Epilogue::kUpdate    ? "update from"
                            : s.epilogue == Epilogue::kSquares ? "squares of"
                                                               : "scale of"));
      if ((s.epilogue == Epilogue::kScale || s.epilogue == Epilogue::kUpdate) &&
          sum.op.value_or(ReduceOp::kSum) != ReduceOp::kSum)
        fail(r, "scale or update of something else than a sum");
      if (s.epilogue == Epilogue::kScale) {
        if (sum.scaled) fail(r, "a sum is scaled twice");
        sum.scale *= s.scale, sum.scaled = true;
        sum.change(1);
      }
      if (s.epilogue == Epilogue::kSquares) read(r, memory_.cell(weight, piece), me, r.clock);
      if (s.epilogue == Epilogue::kUpdate) {
        const Value& old = read(r, memory_.cell(weight, piece), me, r.clock);
        if (old.updates) fail(r, "a weight is updated twice");
        if (old.moved + std::ptrdiff_t(weight.begin) != sum.moved)
          fail(r, "update of another place's weight");
        sum.updates = 1;
        sum.change(2);
      }
      for (const Stretch& target : to) {
        Value here = sum;
        here.moved -= std::ptrdiff_t(target.begin);
        write(r, memory_.cell(target, piece), std::move(here), me, r.clock);
      }
    }
    if (s.epilogue == Epilogue::kSquares) write_norms(r, range, me);
  }

  // Adds for all ranks when the last one comes, as a reduction from all into all. Returns whether
  // the lane may continue.
  bool vendor(Runner& r) {
    Meeting& meeting = meetings_[{r.stage, r.lane, int(r.at)}];
    if (meeting.came.insert(&r).second) meeting.clock.join(r.clock);
    if (int(meeting.came.size()) < plan(r.stage).ranks()) return false;
    r.clock.join(meeting.clock);
    if (!std::exchange(meeting.over, true)) {
      Step sum = lane(r)[r.at];
      sum.to.clear();
      for (const Runner* o : meeting.came) sum.to.push_back(lane(*o)[o->at].to[0]);
      std::ranges::sort(sum.to, {}, &Operand::rank);
      sum.from = sum.to;
      reduce(r, sum);
      meeting.clock = r.clock;
    }
    return true;
  }

  void write_norms(const Runner& r, Range range, Stamp me) {
    const Stretch blocks = norms(r.rank, range);
    for (const auto& piece : memory_.pieces({blocks})) {
      Cell& cell = memory_.cell(blocks, piece);
      if (cell.defined) fail(r, "two sums of squares for one block");
      Value all;
      all.contributions.assign(std::size_t(ranks_), 1);
      write(r, cell, std::move(all), me, r.clock);
    }
  }
  // Reads the norms of everything whose squares this step takes, as an update does.
  void read_norms(const Runner& r, Stamp me) {
    for (const Range range : squared_) {
      const Stretch blocks = norms(r.rank, range);
      for (const auto& piece : memory_.pieces({blocks}))
        read(r, memory_.cell(blocks, piece), me, r.clock);
    }
  }

  void post_send(Runner& r, const Step& s) {
    Message& message = messages_.emplace_back();
    Post& post = r.posts[int(r.at)];
    post.thread = message_thread(r);
    post.message = &message;
    message.count = s.count;
    message.wire = s.wire;
    message.clock = r.clock;
    const Stamp reading = message.clock.tick(post.thread);
    const Stretch source = stretch(s.from[0], s.count, plan(r.stage).dtype);
    for (const auto& piece : memory_.pieces({source})) {
      auto& sent = message.pieces.emplace_back(
          piece, read(r, memory_.cell(source, piece), reading, r.clock));
      sent.second.moved += std::ptrdiff_t(source.begin);
      if (s.wire) sent.second.round();
    }
    auto& sent = wire_[{r.stage, r.rank, s.peer, r.lane}].sent;
    post.number = sent.size();
    sent.push_back(&message);
  }

  // Completes a post and returns true, if possible. A send completes when its receive is posted, a
  // receive when its message is sent.
  bool wait(Runner& r, const Step& s) {
    const auto found = r.posts.find(s.post);
    Post& post = found->second;
    const Step& posted = lane(r)[std::size_t(s.post)];
    if (post.message) {
      if (wire_[{r.stage, r.rank, posted.peer, r.lane}].receives <= post.number) return false;
      r.clock.join(post.message->clock);
    } else {
      const auto& sent = wire_[{r.stage, posted.peer, r.rank, r.lane}].sent;
      if (sent.size() <= post.number) return false;
      const Message& message = *sent[post.number];
      if (message.count != posted.count) fail(r, "a message of another length");
      if (message.wire != posted.wire) fail(r, "a message of another type");
      VectorClock now = post.clock;
      now.join(message.clock);
      const Stamp writing = now.tick(post.thread);
      const Stretch target = stretch(posted.to[0], posted.count, plan(r.stage).dtype);
      for (const auto& [piece, value] : message.pieces) {
        if (piece.second > target.bytes) break;
        Value here = value;
        here.moved -= std::ptrdiff_t(target.begin);
        Stretch part = target;
        part.begin += piece.first, part.bytes = piece.second - piece.first;
        for (const auto& inner : memory_.pieces({part}))
          write(r, memory_.cell(part, inner), here, writing, now);
      }
      r.clock.join(now);
    }
    r.free_threads.push_back(post.thread);
    r.posts.erase(found);
    return true;
  }

  void check_stuck() {
    std::string stuck;
    for (const Runner& r : runners_) {
      if (ended(r)) continue;
      stuck += fmt::format("{} {}", stuck.empty() ? "" : ";",
                           place_of(plan(r.stage), r.rank, r.lane, r.at));
    }
    if (!stuck.empty()) error_ = "deadlock:" + stuck;
    for (const auto& [key, wire] : wire_)
      if (error_.empty() && wire.sent.size() > wire.receives)
        error_ = fmt::format("a message is sent and never received: plan {}, rank {} to rank {}",
                             plan(key[0]).name, key[1], key[2]);
  }

  // Checks the accesses at the end of plans. When a plan has ended on a rank, its caller may reuse
  // the rank's memory. So the rank must know that all accesses of the plan to it have happened.
  // Scratch of a plan that alternates is exempt, since no other plan uses it.
  void check_ends() {
    std::map<std::pair<int, int>, VectorClock> ends;
    for (const Runner& r : runners_) ends[{r.stage, r.rank}].join(r.clock);
    for (const auto& [where, cells] : memory_.spaces())
      for (const auto& [begin, interval] : cells) {
        const int rank = where.first;
        const auto over = [&, space = where.second, from = begin](Stamp s, const char* what) {
          const int stage = s.thread < 0 ? -1 : stage_of_thread_[std::size_t(s.thread)];
          if (stage < 0 || ends[{stage, rank}].knows(s) || !error_.empty()) return;
          if (space == Space::kScratch && plan(stage).alternate > 0) return;  // see repetition.h
          error_ = fmt::format("a rank ends before others have {}: plan {}, rank {}, {} byte {}",
                               what, plan(stage).name, rank, name(space), from);
        };
        over(interval.cell.writer, "written its memory");
        for (const Stamp s : interval.cell.readers) over(s, "read its memory");
      }
  }

  void check_goal(Goal goal) {
    for (int stage = 0; stage < int(step_.size()) && error_.empty(); ++stage) {
      const Plan& p = plan(stage);
      if (goal == Goal::kNothing) return;
      const bool weights = goal == Goal::kUpdateEverywhere;
      if (p.space != (weights ? Space::kGradient : result_)) continue;
      std::vector<Stretch> all;
      for (int rank = 0; rank < ranks_; ++rank)
        all.push_back(stretch({rank, weights ? Space::kWeight : p.space, p.subject.begin},
                              p.subject.size(), p.dtype));
      for (const auto& piece : memory_.pieces(all)) check_piece(goal, p, all, piece);
    }
  }

  // Returns the expected scale of a sum that this plan, or another of its space, makes there.
  double promised_scale(const Plan& p, std::size_t byte) const {
    const bool mean = std::any_of(step_.begin(), step_.end(), [&](const Stage& stage) {
      const Plan& o = stage.plan;
      const Stretch s = stretch({0, o.space, o.subject.begin}, o.subject.size(), o.dtype);
      return o.mean && o.space == p.space && byte >= s.begin && byte < s.begin + s.bytes;
    });
    return mean ? 1.0 / double(ranks_) : 1;
  }

  // Returns whether the cell has the result that the goal requires.
  bool good(Goal goal, const Cell& cell, const Value& first, double scale) const {
    const Value& value = cell.value;
    if (value.moved != 0) return false;
    const auto ones = std::count(value.contributions.begin(), value.contributions.end(), 1);
    if (goal == Goal::kOneEverywhere)
      return cell.defined && ones == 1 && value == first && value.updates == 0 &&
             std::count(value.contributions.begin(), value.contributions.end(), 0) == ranks_ - 1;
    return cell.defined && value.whole() &&
           value.updates == (goal == Goal::kUpdateEverywhere ? 1 : 0) && value.scale == scale &&
           (goal == Goal::kSumOfMySlice || value.bits == first.bits);
  }

  void check_piece(Goal goal, const Plan& p, const std::vector<Stretch>& all,
                   std::pair<std::size_t, std::size_t> piece) {
    int count = 0;
    const std::size_t byte = all[0].begin + piece.first;
    const std::size_t element = byte / engine::size_of(p.dtype);
    const double scale = promised_scale(p, byte);
    const Value first = memory_.cell(all[0], piece).value;
    for (const Stretch& one : all) {
      const Cell& cell = memory_.cell(one, piece);
      if (good(goal, cell, first, scale)) {
        ++count;
      } else if (goal != Goal::kSumOfMySlice && error_.empty()) {
        const bool factor =
            goal != Goal::kOneEverywhere && cell.value.whole() && cell.value.scale != scale;
        error_ = fmt::format(
            "{}{}{}: plan {}, rank {}, element {}",
            goal == Goal::kSumEverywhere   ? "the sum is wrong"
            : goal == Goal::kOneEverywhere ? "not one rank's number in all"
                                           : "the weight is not updated",
            factor ? fmt::format(", scaled by {} and not by {}", cell.value.scale, scale) : "",
            cell.value.whole() && cell.value.bits != first.bits ? ", its bits are not rank 0's"
                                                                : "",
            p.name, one.rank, element);
      }
    }
    if (count == 0 && error_.empty())
      error_ = fmt::format("the slice is wrong: nobody has the whole sum: plan {}, element {}",
                           p.name, element);
  }

  const StepPlan& step_;
  Space result_;
  int ranks_;
  std::vector<int> stage_of_thread_;  // -1: computing thread
  std::vector<int> computing_;        // by rank
  std::vector<Range> squared_;        // subjects whose squares are taken
  std::deque<Runner> runners_;
  std::vector<std::vector<std::vector<Runner*>>> by_rank_;  // [stage][rank]
  SymbolicMemory memory_;
  std::deque<Message> messages_;
  std::map<std::array<int, 4>, Wire> wire_;                          // {stage, from, to, lane}
  std::map<std::array<int, 3>, std::vector<VectorClock>> arrivals_;  // {stage, rank, lane}
  std::map<std::array<int, 3>, Meeting> meetings_;                   // {stage, lane, step}
  std::string error_;
};

}  // namespace

std::string verify(const StepPlan& step, Goal goal, Space result) {
  if (step.empty()) return {};
  if (std::string wrong = malformed(step); !wrong.empty()) return wrong;
  if (std::string wrong = Verification(step, result)(goal); !wrong.empty()) return wrong;
  for (const Stage& stage : step) {
    if (stage.plan.alternate == 0) continue;
    const StepPlan row = repetition(stage.plan);
    if (std::string wrong = Verification(row, result)(Goal::kNothing); !wrong.empty())
      return wrong + ", executed again and again";
  }
  return {};
}

std::string verify(const Plan& plan, Goal goal, Space result) {
  return verify(StepPlan{{plan, {}, false}}, goal, result);
}

}  // namespace lockstep::collectives
