// SPDX-License-Identifier: MIT
#include "collectives/job/job.h"

#include <unistd.h>

#include <utility>

namespace lockstep::collectives {
namespace {

void require_deadline(const JobOptions& options) {
  engine::require(options.deadline.count() > 0, "the deadline must be positive");
}

std::vector<int> exchanged_pids(Bootstrap& bootstrap, const JobOptions& options) {
  require_deadline(options);
  std::vector<int> pids;
  for (const std::string& pid :
       bootstrap.all_gather(std::to_string(getpid()), "processes of the ranks"))
    pids.push_back(std::stoi(pid));
  return pids;
}

}  // namespace

Job::Job(JobRanks ranks, const JobOptions& options)
    : Job(ranks, exchanged_pids(ranks.bootstrap, options), options) {}

Job::Job(JobRanks ranks, const std::vector<int>& pids, const JobOptions& options)
    : ranks_(std::move(ranks)),
      options_(options),
      first_(ranks_.mine().front()),
      after_(options.activity) {
  require_deadline(options_);
  watch_ = std::make_unique<PeerWatch>([this](const PeerProcess& peer) { died(peer); });
  const JobRanks of_machine = by_machine(ranks_);
  const int watched = watch_host(of_machine, pids, *watch_);
  ranks_are_processes_ = watched + 1 == int(of_machine.local().size());
}

Job::~Job() {
  release();
}

ExecutorOptions Job::executor_options() const {
  return {.deadline = options_.deadline,
          .stream_from = access_.results,
          .cache = access_.touched,
          .read_ahead = access_.read_ahead};
}

void Job::stop(const engine::Error& why) noexcept {
  const std::scoped_lock lock(mutex_);
  stop_all(why);
}

void Job::stop_all(const engine::Error& why) noexcept {
  for (const auto& stop : stops_) stop(why);
  if (why.code() != engine::Code::kPeerLost) return;
  if (!lost_) lost_ = why;
  ranks_.bootstrap.abandon(why);
}

// Handles a death. The first death is the cause: processes that die after it have been stopped by
// it.
void Job::died(const PeerProcess& peer) noexcept {
  const std::scoped_lock lock(mutex_);
  if (lost_ || (expected_ && stops_.empty())) return;
  stop_all(death(peer, before_, after_));
}

std::optional<engine::Error> Job::lost() const {
  const std::scoped_lock lock(mutex_);
  return lost_;
}

bool Job::expect_deaths(bool expected) {
  const std::scoped_lock lock(mutex_);
  return std::exchange(expected_, expected);
}

void Job::release() {
  watch_->release();
}

Job::Stopper::Stopper(Job& job, std::function<void(const engine::Error&)> stop) : job_(job) {
  const std::scoped_lock lock(job.mutex_);
  if (job.lost_) stop(*job.lost_);
  at_ = job.stops_.insert(job.stops_.end(), std::move(stop));
}

Job::Stopper::~Stopper() {
  const std::scoped_lock lock(job_.mutex_);
  job_.stops_.erase(at_);
}

Job::Activity::Activity(Job& job, std::string before, std::string after) : job_(job) {
  const std::scoped_lock lock(job.mutex_);
  before_ = std::exchange(job.before_, std::move(before));
  after_ = std::exchange(job.after_, std::move(after));
}

Job::Activity::~Activity() {
  const std::scoped_lock lock(job_.mutex_);
  job_.before_ = std::move(before_);
  job_.after_ = std::move(after_);
}

}  // namespace lockstep::collectives
