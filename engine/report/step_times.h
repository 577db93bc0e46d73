// SPDX-License-Identifier: MIT
// Where the time of a job's steps goes, by rank. In lockstep a slow rank makes all ranks slow, and
// the length of a step is the same everywhere: who holds up the others is seen only in what a rank
// does itself, its step without its waits. So each rank keeps both (StepClock), all ranks'
// numbers come together (RankTimes), and these are told apart (StepTimes):
//
//   - the slowest rank: the one whose own work takes longest;
//   - what the others wait for it: their waits, less the shortest that any rank has;
//   - communication that nothing hides: of each step the shortest wait that any rank has, since who
//     comes last waits for nobody. All ranks learn it with the sums of a later step
//     (Totals::waited). What ranks wait that are late in turn, each in other steps, is no part of
//     it.
//
// Between hosts, where messages take their time without a processor, the rest of the time in which
// messages were under way is hidden. A message is under way for whoever waits for it from when it
// could come, however late its sender is; so this time, too, is that of the rank that has least of
// it in a step, who waits for nobody.
//
// Work on a bucket that a thread does while it waits for it counts as waiting. Medians over the
// steps. Seconds.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/report/histogram.h"

namespace lockstep::engine {

// One rank's steps.
struct RankTimes {
  static constexpr std::size_t kNumbers = 11;
  double steps = 0;
  double step_p10 = 0, step = 0, step_p90 = 0, step_p99 = 0, step_most = 0;
  double work = 0;      // of a step, without waits: median
  double waited = 0;    // in a step: median
  double messages = 0;  // under way to or from other hosts, in a step: median
  // The same of the rank that has least of it in a step, messages of those that have any: medians,
  // the same on all ranks.
  double least_waited = 0, least_messages = 0;
  std::array<double, kNumbers> numbers() const;                      // for others ...
  static RankTimes from(std::span<const double, kNumbers> numbers);  // ... who read them
};

// What a rank's thread fills, step by step; allocates nothing.
class StepClock {
 public:
  void add(double seconds, double waited, double messages);
  void add_least(double waited, double messages);  // of all ranks in a step, once it is known
  RankTimes times() const;

 private:
  Histogram step_, work_, waited_, messages_, least_waited_, least_messages_;
};

struct StepTimes {
  std::vector<RankTimes> ranks = {};
  int slowest = 0;
  double waited_for_slowest = 0;  // by the others, a step: median over them
  double late_in_turn = 0;        // waits for ranks that are late in turn, a step, of every rank
  double exposed = 0;             // communication that is not hidden, a step
  double messages = 0;            // under way between hosts, a step: the shortest of any rank

  // Whether communication takes longer than the slowest rank's work, in enough steps to say so.
  bool communication_bound() const;
  // Of the time in which messages were under way, how much is hidden; none without messages.
  std::optional<double> hidden_percent() const;
  std::string describe() const;  // a sentence for people
  std::string warning() const;   // what to do about communication; empty: nothing
};

// From the numbers of all ranks, kNumbers each; at least one rank.
StepTimes step_times(std::span<const double> numbers);

}  // namespace lockstep::engine
