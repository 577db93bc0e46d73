// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/assignments.h"

#include <algorithm>

namespace lockstep::strategies {

using engine::Work;

Assignments::Assignments(int workers, int aggregate, std::int64_t warm_up)
    : workers_(workers),
      aggregate_(aggregate),
      warm_up_(warm_up),
      by_worker_(std::size_t(workers)) {
  engine::require(workers >= 1, "there must be at least one worker");
  engine::require(aggregate >= 0 && aggregate <= workers,
                  "gradients of {} workers cannot be awaited of {}", aggregate, workers);
}

void Assignments::begin(const engine::WorkSpec& work) {
  work_ = work;
  stopped_ = false;
  end_ = work.first_step + work.steps;
  by_worker_.assign(std::size_t(workers_), {{}, work.first_step, work.position});
  next_ = open_ = work.first_step;
  position_ = work.position;
  returned_.clear();
  finished_.clear();
}

bool Assignments::warming_up(int worker) const {
  return aggregate_ == 0 && worker != 0 && next_ < std::min(warm_up_, end_);
}

std::optional<Work> Assignments::next_batch(int worker) {
  if (warming_up(worker)) return std::nullopt;
  if (!returned_.empty()) return returned_.extract(returned_.begin()).mapped();
  if (next_ == end_) return std::nullopt;
  return engine::take_batch(work_, next_++, position_);
}

std::optional<Work> Assignments::next_share(int worker) {
  PerWorker& mine = by_worker_[std::size_t(worker)];
  Work work;
  do {
    if (mine.next >= end_) return std::nullopt;
    work = engine::take_batch(work_, mine.next++, mine.position);
  } while (work.step < open_);
  work.local_batch = engine::share_of(work.local_batch, worker, workers_);
  return work;
}

std::optional<Work> Assignments::next(int worker) {
  std::optional<Work> work = aggregate_ > 0 ? next_share(worker) : next_batch(worker);
  if (work) by_worker_[std::size_t(worker)].works.emplace(work->step, *work);
  return work;
}

void Assignments::done(int worker, std::int64_t step) {
  if (by_worker_[std::size_t(worker)].works.erase(step) == 0 || aggregate_ == 0 || step < open_)
    return;
  std::vector<bool>& who = finished_[step];
  who.resize(std::size_t(workers_));
  who[std::size_t(worker)] = true;
  const auto enough = [&] {
    const auto first = finished_.find(open_);
    return first != finished_.end() &&
           std::count(first->second.begin(), first->second.end(), true) >= aggregate_;
  };
  while (enough()) finished_.erase(open_++);
}

void Assignments::lost(int worker) {
  PerWorker& mine = by_worker_[std::size_t(worker)];
  if (aggregate_ == 0) {
    returned_.merge(mine.works);
  } else if (!mine.works.empty()) {
    // The worker begins again with the first step that it has not finished.
    engine::DataPosition position = work_.position;
    const std::int64_t first = mine.works.begin()->first;
    for (std::int64_t step = work_.first_step; step < first; ++step)
      engine::take_batch(work_, step, position);
    mine.next = first;
    mine.position = position;
  }
  mine.works.clear();
}

void Assignments::stop() {
  stopped_ = true;
  pause();
}

void Assignments::pause() {
  end_ = next_;
  if (aggregate_ == 0) return;
  for (const PerWorker& one : by_worker_) end_ = std::max(end_, one.next);
}

bool Assignments::finished() const {
  if (aggregate_ > 0) return open_ == end_;
  return returned_.empty() && next_ == end_ &&
         std::ranges::all_of(by_worker_, [](const PerWorker& one) { return one.works.empty(); });
}

bool Assignments::has_work_for(int worker) const {
  if (aggregate_ > 0) return by_worker_[std::size_t(worker)].next < end_ && open_ < end_;
  return !warming_up(worker) && (!returned_.empty() || next_ < end_);
}

engine::Standing Assignments::standing() const {
  if (aggregate_ == 0) return {next_, position_};
  engine::DataPosition position = work_.position;
  for (std::int64_t step = work_.first_step; step < open_; ++step)
    engine::take_batch(work_, step, position);
  return {open_, position};
}

}  // namespace lockstep::strategies
