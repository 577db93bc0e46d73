// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/work_dealer.h"

#include <algorithm>

namespace lockstep::strategies {

using engine::Work;

WorkDealer::WorkDealer(int workers, int aggregate, std::int64_t warm_up)
    : workers_(workers), aggregate_(aggregate), warm_up_(warm_up), held_(std::size_t(workers)) {
  engine::require(workers >= 1, "there must be at least one worker");
  engine::require(aggregate >= 0 && aggregate <= workers,
                  "gradients of {} workers cannot be awaited of {}", aggregate, workers);
}

void WorkDealer::begin(const engine::WorkSpec& work) {
  std::scoped_lock lock(mutex_);
  work_ = work;
  stopped_ = false;
  end_ = work.first_step + work.steps;
  held_.assign(std::size_t(workers_), {{}, work.first_step, work.position});
  dealt_ = open_ = work.first_step;
  position_ = work.position;
  returned_.clear();
  finished_.clear();
}

bool WorkDealer::held_back(int worker) const {
  return aggregate_ == 0 && worker != 0 && dealt_ < std::min(warm_up_, end_);
}

bool WorkDealer::warming_up(int worker) const {
  std::scoped_lock lock(mutex_);
  return held_back(worker);
}

std::optional<Work> WorkDealer::next_batch(int worker) {
  if (held_back(worker)) return std::nullopt;
  if (!returned_.empty()) return returned_.extract(returned_.begin()).mapped();
  if (dealt_ == end_) return std::nullopt;
  return engine::take_batch(work_, dealt_++, position_);
}

std::optional<Work> WorkDealer::next_share(int worker) {
  Held& held = held_[std::size_t(worker)];
  Work work;
  do {
    if (held.next >= end_) return std::nullopt;
    work = engine::take_batch(work_, held.next++, held.position);
  } while (work.step < open_);
  work.local_batch = engine::share_of(work.local_batch, worker, workers_);
  return work;
}

std::optional<Work> WorkDealer::next(int worker) {
  std::scoped_lock lock(mutex_);
  std::optional<Work> work = aggregate_ > 0 ? next_share(worker) : next_batch(worker);
  if (work) held_[std::size_t(worker)].works.emplace(work->step, *work);
  return work;
}

void WorkDealer::done(int worker, std::int64_t step) {
  std::scoped_lock lock(mutex_);
  if (held_[std::size_t(worker)].works.erase(step) == 0 || aggregate_ == 0 || step < open_) return;
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

void WorkDealer::lost(int worker) {
  std::scoped_lock lock(mutex_);
  Held& held = held_[std::size_t(worker)];
  if (aggregate_ == 0) {
    returned_.merge(held.works);
  } else if (!held.works.empty()) {
    // It begins again with the first step that it has not finished.
    engine::DataPosition position = work_.position;
    const std::int64_t first = held.works.begin()->first;
    for (std::int64_t step = work_.first_step; step < first; ++step)
      engine::take_batch(work_, step, position);
    held.next = first;
    held.position = position;
  }
  held.works.clear();
}

void WorkDealer::stop() {
  std::scoped_lock lock(mutex_);
  stopped_ = true;
  close();
}

void WorkDealer::pause() {
  std::scoped_lock lock(mutex_);
  close();
}

void WorkDealer::close() {
  end_ = dealt_;
  if (aggregate_ == 0) return;
  // The last that anybody has is made by all.
  for (const Held& held : held_) end_ = std::max(end_, held.next);
}

bool WorkDealer::stopped() const {
  std::scoped_lock lock(mutex_);
  return stopped_;
}

bool WorkDealer::finished() const {
  std::scoped_lock lock(mutex_);
  const bool idle =
      std::all_of(held_.begin(), held_.end(), [](const Held& held) { return held.works.empty(); });
  if (aggregate_ > 0) return open_ == end_;
  return idle && returned_.empty() && dealt_ == end_;
}

bool WorkDealer::waiting_for(int worker) const {
  std::scoped_lock lock(mutex_);
  if (aggregate_ > 0) return held_[std::size_t(worker)].next < end_ && open_ < end_;
  return !held_back(worker) && (!returned_.empty() || dealt_ < end_);
}

engine::Standing WorkDealer::standing() const {
  std::scoped_lock lock(mutex_);
  if (aggregate_ == 0) return {dealt_, position_};
  engine::DataPosition position = work_.position;
  for (std::int64_t step = work_.first_step; step < open_; ++step)
    engine::take_batch(work_, step, position);
  return {open_, position};
}

}  // namespace lockstep::strategies
