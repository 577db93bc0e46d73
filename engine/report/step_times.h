// SPDX-License-Identifier: MIT
// Shows where the time of a job's steps goes, by rank. In synchronous training a slow rank slows
// all, and a step takes equally long everywhere. A straggler shows only in its own work: its step
// without its waits. Each rank records both (StepClock), all ranks' numbers are gathered
// (RankTimes), and StepTimes has:
//   - the slowest rank: the one with the longest work of its own;
//   - the others' wait for it: their waits, less the shortest of any rank;
//   - exposed communication: per step, the shortest wait of any rank, because the last rank waits
//     for nobody. All ranks learn it with the sums of a later step (Totals::waited). It excludes
//     waits for ranks that are late in turn, each in other steps.
// Between hosts, messages need no processor, and the rest of their time in flight is hidden. For a
// waiting rank a message is in flight from when it could arrive, however late its sender is. So
// this time, too, is that of the rank with the least of it in a step, which waits for nobody. Work
// on a bucket that a thread does while it waits for it counts as waiting. Medians over the steps,
// in seconds.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/report/histogram.h"

namespace lockstep::engine {

// Holds the times of one rank's steps.
struct RankTimes {
  static constexpr std::size_t kNumbers = 11;
  double steps = 0;
  double step_p10 = 0, step = 0, step_p90 = 0, step_p99 = 0, step_most = 0;
  double work = 0;      // work per step, without waits: median
  double waited = 0;    // per step: median
  double messages = 0;  // in flight to or from other hosts: median
  // These are medians of the least value of any rank in a step (for messages, in steps that have
  // any). They are the same on all ranks.
  double least_waited = 0, least_messages = 0;
  std::array<double, kNumbers> numbers() const;                      // sent to other ranks ...
  static RankTimes from(std::span<const double, kNumbers> numbers);  // ... which read them
};

// Collects the times of a rank's thread, step by step; allocates nothing.
class StepClock {
 public:
  void add(double seconds, double waited, double messages);
  void add_least(double waited, double messages);  // least of all ranks, once it is known
  RankTimes times() const;

 private:
  Histogram step_, work_, waited_, messages_, least_waited_, least_messages_;
};

struct StepTimes {
  std::vector<RankTimes> ranks = {};
  int slowest = 0;
  double waited_for_slowest = 0;  // the others' wait per step: median
  double late_in_turn = 0;        // every rank's wait per step for alternating stragglers
  double exposed = 0;             // exposed communication per step
  double messages = 0;            // in flight between hosts per step, shortest rank

  // Returns whether communication takes longer than the slowest rank's work, in enough steps to say
  // so.
  bool communication_bound() const;
  // Returns the hidden part of the time in which messages were in flight; none without messages.
  std::optional<double> hidden_percent() const;
  // Returns a sentence for people, and with several ranks a line for each part of the time.
  std::string describe() const;
  std::string warning() const;  // what to do about communication; empty: nothing
};

// Computes the times from the numbers of all ranks, kNumbers each; at least one rank.
StepTimes step_times(std::span<const double> numbers);

}  // namespace lockstep::engine
