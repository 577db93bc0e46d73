// SPDX-License-Identifier: MIT
#include "collectives/job/rank_link.h"

#include <algorithm>
#include <utility>

#include "collectives/job/host_connections.h"
#include "collectives/memory/mapped_memory.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

namespace {

std::size_t pages(std::size_t bytes) {
  return whole_pages(std::max<std::size_t>(bytes, 1));
}

}  // namespace

RankLink::RankLink(Job& job, const engine::Ops& ops, StepPlan plan, std::size_t bytes,
                   std::size_t scratch, const std::string& what)
    : plan_(std::move(plan)) {
  const std::string mine = fmt::format("{:016x} {}", hash(plan_), transport_of(job.network()));
  const auto all = job.bootstrap().all_gather(mine, what + ": plans");
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    engine::require(all[rank] == all[0],
                    "{}: rank {} plans it differently from rank 0; all must ask for the same", what,
                    rank);
  make_team(job, bytes, scratch, what + ": ");
  auto transports = connect_hosts(job.ranks(), plan_, job.network(), job.deadline(), what + ": ");
  transport_ = std::move(transports[0]);
  executor_.emplace(job.rank(), *team_, transport_.get(), ops, OwnedState{},
                    job.executor_options());
  executor_->open(plan_);
}

RankLink::~RankLink() {
  if (executor_) executor_->tell_peers();
}

void RankLink::make_team(Job& job, std::size_t bytes, std::size_t scratch,
                         const std::string& what) {
  const JobRanks& ranks = job.ranks();
  memory_.emplace(ranks, pages(bytes) + pages(scratch),
                  Team::control_bytes(ranks.local().size(), plan_.size()), what);
  team_.emplace(job, *memory_, plan_.size());
  for (const int rank : memory_->local()) {
    team_->set_base(rank, Space::kGradient, memory_->block(rank));
    team_->set_base(rank, Space::kScratch, memory_->block(rank) + pages(bytes));
  }
  data_ = memory_->block(job.rank());
}

void RankLink::check() const {
  if (team_->stopped()) team_->rethrow();
}

// Starts a plan even if the team is stopped: the wait for it names the plan beside what stopped the
// team.
void RankLink::start(int plan) {
  if (!executor_->done(plan)) check();
  executor_->start(plan, nullptr);
}

void RankLink::progress() {
  executor_->progress();
  check();
}

}  // namespace lockstep::collectives
