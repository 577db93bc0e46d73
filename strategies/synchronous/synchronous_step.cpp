// SPDX-License-Identifier: MIT
// Calls of a step: see synchronous.h.
#include <algorithm>
#include <ranges>

#include "strategies/synchronous/mirror_check.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

using collectives::Space;
using engine::Range;
using engine::Totals;

namespace {

// Deadlines that an exchange outside of steps may take.
constexpr int kMeetings = 10;

}  // namespace

Mirror& Synchronous::mirror(engine::Replica& replica) const {
  return static_cast<Mirror&>(replica);
}

void Synchronous::assign(const engine::WorkSpec& work) {
  engine::require(work.global_batch >= 1 && work.global_batch <= open_.options.global_batch,
                  "a batch of {} was assigned, and {} were planned for", work.global_batch,
                  open_.options.global_batch);
  engine::require(work.examples >= 1, "the data set is empty");
  work_ = work;
  for (const auto& m : mirrors_) {
    m->progress.assigned = 0;
    m->progress.position = work.position;
  }
}

std::optional<engine::Work> Synchronous::next(engine::Replica& replica) {
  Mirror& m = mirror(replica);
  if (m.progress.assigned == work_.steps) return {};
  engine::Work work =
      engine::take_batch(work_, work_.first_step + m.progress.assigned++, m.progress.position);
  work.local_batch = engine::share_of(work.local_batch, m.rank, job_->size(), options_.shares);
  return work;
}

void Synchronous::staged(engine::Replica& replica) {
  if (auto& loss_scale = mirror(replica).loss_scale) loss_scale->staged();
}

void Synchronous::before_forward(engine::Replica& replica, Range range) {
  Mirror& m = mirror(replica);
  bool updated = false;
  for (std::size_t b = 0; b < design_.buckets.size(); ++b) {
    if (!design_.buckets[b].meets(range)) continue;
    m.executor().wait(design_.stages.updates[b], "weights for forward");
    updated = true;
  }
  // This layer is ordered after the updates that are queued.
  if (!m.progress.behind_updates) {
    const bool all = std::ranges::all_of(design_.stages.updates,
                                         [&](int update) { return m.executor().done(update); });
    m.kernels().go_behind_reductions();
    m.progress.behind_updates = all;
  }
  if (m.loss_scale && updated && work_.training && !m.progress.recording)
    m.loss_scale->give(m.context->state, m.Replica::state.step);
  m.executor().progress();
}

// Starts the collectives of all buckets that end at or before `end`. This step does not read the
// weights up to there again, and they are not written until this rank starts their bucket. So all
// weights that the step has used are checked here.
void Synchronous::start_buckets(Mirror& m, std::size_t end) {
  if (m.progress.started == 0)
    m.update_state = m.Replica::state;  // all updates of the last step are done
  if (m.progress.started < design_.buckets.size() &&
      design_.buckets[m.progress.started].end <= end) {
    if (m.checks) m.checks->add(m.space(Space::kWeight), end, m.Replica::state.step);
    m.kernels().reduce_behind_kernels();
  }
  for (; m.progress.started < design_.buckets.size() &&
         design_.buckets[m.progress.started].end <= end;
       ++m.progress.started) {
    for (int stage : design_.stages.buckets[m.progress.started])
      m.executor().start(stage, &m.update_state);
  }
}

void Synchronous::gradient_ready(engine::Replica& replica, Range range) {
  Mirror& m = mirror(replica);
  if (options_.hook) options_.hook();
  if (!options_.step.overlap) return;
  start_buckets(m, range.end);
  m.executor().progress();
  if (options_.hook) options_.hook();
  if (range.end == m.graph.trainable()) return;  // backward has ended
  std::int64_t done = 0;
  for (std::size_t b = 0; b < m.progress.started; ++b)
    done += m.executor().done(design_.stages.updates[b]);
  m.overlapped.updates += done;
}

void Synchronous::finish(engine::Replica& replica) {
  Mirror& m = mirror(replica);
  if (!options_.step.overlap) start_buckets(m, m.graph.trainable());
  engine::invariant(m.progress.started == design_.buckets.size(),
                    "backward has not announced every gradient");
  m.progress.started = 0;
  m.progress.behind_updates = false;
  if (m.checks) {
    m.checks->add(m.space(Space::kWeight), m.graph.parameters(), m.Replica::state.step);
    m.checks->end_step();
    if (!m.progress.recording) m.checks->keep(m.Replica::state.step);
  }
  m.executor().progress();
}

Totals Synchronous::totals_of(Mirror& m) {
  if (m.reported.step < 0) return {};
  m.executor().finish(design_.stages.metrics, "metrics");
  const double* numbers =
      reinterpret_cast<double*>(m.space(Space::kExchange)) + design_.space.metrics.begin;
  const MirrorHashes hashes{numbers + kTotals + kTimes, kNumbersOfRank, std::size_t(job_->size())};
  if (!hashes.equal())
    fail_unequal_mirrors(
        *m.checks, std::size_t(job_->size()), m.reported.step + 1, kGather,
        [&](std::span<const double> mine, std::string_view what) { return gather(m, mine, what); });
  Totals totals{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
  if (open_.rule.scaling.dynamic) {
    totals.loss_scale = m.reported.scale.scale;
    totals.skipped = double(m.reported.scale.skipped);
  } else if (open_.rule.scaling.start != 1) {
    totals.loss_scale = open_.rule.scaling.start;
  }
  const double* times = numbers + kTotals;
  totals.waited = times[0];
  for (std::size_t rank = 0; rank < std::size_t(job_->size()); ++rank, times += kNumbersOfRank) {
    totals.waited = std::min(totals.waited, times[0]);
    if (times[1] > 0 && (totals.messages == 0 || times[1] < totals.messages))
      totals.messages = times[1];
  }
  return totals;
}

// Keeps a deadline that the user set.
void Synchronous::learn_deadline(Mirror& m) {
  if (!m.deadline.reported(engine::Clock::now()) || options_.deadline) return;
  const std::chrono::milliseconds now = m.deadline.at_least(deadline());
  m.executor().set_deadline(now);
  if (vendor_sums_) vendor_sums_->set_deadline(now);
  if (shared_.gpu_spaces) shared_.gpu_spaces->set_deadline(now);
  if (graph_recorder_) graph_recorder_->set_deadline(now);
}

Totals Synchronous::report(engine::Replica& replica, std::int64_t step, const Totals& mine) {
  Mirror& m = mirror(replica);
  learn_deadline(m);
  const Totals before = totals_of(m);
  if (m.loss_scale) m.reported.scale = m.loss_scale->before(step);
  double* numbers =
      reinterpret_cast<double*>(m.space(Space::kExchange)) + design_.space.metrics.begin;
  std::fill_n(numbers, design_.space.metrics.size(), 0.0);
  numbers[0] = mine.loss;
  numbers[1] = mine.correct;
  numbers[2] = mine.examples;
  numbers[3] = mine.stop;
  numbers[4] = mine.save;
  double* own = numbers + kTotals + std::size_t(m.rank) * kNumbersOfRank;
  own[0] = mine.waited;
  own[1] = mine.messages;
  if (m.checks) {
    // A host that is not a step ahead of its device has waited only for the loss.
    if (step == m.Replica::state.step) m.kernels().synchronize();
    own[kTimes] = m.checks->take(step);
  }
  m.reported.step = step;
  m.executor().start(design_.stages.metrics, nullptr);
  m.executor().progress();
  return before;
}

Totals Synchronous::synchronize(engine::Replica& replica) {
  Mirror& m = mirror(replica);
  for (std::size_t stage = 0; stage < design_.stages.of_step; ++stage) {
    m.executor().finish(int(stage), "end of the step");
  }
  if (graph_recorder_)
    // No plan knows when repeated steps are done.
    m.kernels().synchronize();
  if (m.loss_scale) m.reported.scale.skipped = m.loss_scale->now().skipped;
  return totals_of(m);
}

void Synchronous::average_statistics(engine::Replica& replica, std::string_view what) {
  if (design_.stages.statistics < 0 || job_->size() == 1) return;
  Mirror& m = mirror(replica);
  const std::span<double> mine = m.graph.statistic_values();
  double* const numbers =
      reinterpret_cast<double*>(m.space(Space::kExchange)) + design_.space.statistics.begin;
  // Ranks without examples since the last call have unchanged statistics and do not count.
  const bool followed = !std::equal(mine.begin(), mine.end(), m.averaged.begin(), m.averaged.end());
  std::fill_n(numbers, mine.size(), 0.0);
  if (followed) std::copy(mine.begin(), mine.end(), numbers);
  double& counted = numbers[mine.size()] = followed ? 1 : 0;
  m.executor().start(design_.stages.statistics, nullptr);
  m.executor().finish(design_.stages.statistics, what);
  for (std::size_t i = 0; counted > 0 && i < mine.size(); ++i) mine[i] = numbers[i] / counted;
  m.averaged.assign(mine.begin(), mine.end());
}

std::vector<double> Synchronous::gather(engine::Replica& replica, std::span<const double> mine,
                                        std::string_view what) {
  Mirror& m = mirror(replica);
  engine::invariant(mine.size() <= kGather, "more numbers than a gather takes");
  double* numbers =
      reinterpret_cast<double*>(m.space(Space::kExchange)) + design_.space.gather.begin;
  std::fill_n(numbers, design_.space.gather.size(), 0.0);
  std::copy(mine.begin(), mine.end(), numbers + std::size_t(m.rank) * kGather);
  // Files are written and read between two exchanges, which takes longer than a step.
  const std::chrono::milliseconds usual = m.deadline.at_least(deadline());
  if (!options_.deadline) m.executor().set_deadline(kMeetings * usual);
  m.executor().start(design_.stages.gather, nullptr);
  m.executor().finish(design_.stages.gather, what);
  if (!options_.deadline) m.executor().set_deadline(usual);
  std::vector<double> all;
  for (std::size_t rank = 0; rank < std::size_t(job_->size()); ++rank) {
    all.insert(all.end(), numbers + rank * kGather, numbers + rank * kGather + mine.size());
  }
  return all;
}

}  // namespace lockstep::strategies
