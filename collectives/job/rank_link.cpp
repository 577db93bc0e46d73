// SPDX-License-Identifier: MIT
#include "collectives/job/rank_link.h"

#include <algorithm>

#include "collectives/job/host_connections.h"
#include "collectives/memory/mapped_memory.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

namespace {

std::size_t pages(std::size_t bytes) {
  return whole_pages(std::max<std::size_t>(bytes, 1));
}

}  // namespace

RankLink::RankLink(const Ranks& ranks, StepPlan plan, std::size_t bytes, std::size_t scratch,
                   const std::string& what)
    : plan_(std::move(plan)) {
  const std::string mine = fmt::format("{:016x} {}", hash(plan_), transport_of(ranks.network));
  const auto all = ranks.bootstrap.all_gather(mine, what + ": plans");
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    engine::require(all[rank] == all[0],
                    "{}: rank {} plans it differently from rank 0; all must ask for the same", what,
                    rank);
  make_team(ranks, bytes, scratch, what + ": ");
  transport_ =
      std::move(connect_hosts(ranks, plan_, ranks.network, ranks.deadline, what + ": ")[0]);
  ExecutorOptions options;
  options.deadline = ranks.deadline;
  options.stream_from = ranks.access.results;
  options.cache = ranks.access.touched;
  options.read_ahead = ranks.access.read_ahead;
  executor_.emplace(ranks.rank(), *team_, transport_.get(), ranks.ops, OwnedState{}, options);
  executor_->open(plan_);
}

RankLink::~RankLink() {
  if (executor_) executor_->tell_peers();
}

void RankLink::make_team(const Ranks& ranks, std::size_t bytes, std::size_t scratch,
                         const std::string& what) {
  memory_.emplace(ranks, pages(bytes) + pages(scratch),
                  Team::control_bytes(ranks.local().size(), plan_.size()), what);
  team_.emplace(memory_->local(), plan_.size(), memory_->control());
  for (const int rank : memory_->local()) {
    team_->set_base(rank, Space::kGradient, memory_->block(rank));
    team_->set_base(rank, Space::kScratch, memory_->block(rank) + pages(bytes));
  }
  data_ = memory_->block(ranks.rank());
}

void RankLink::check() const {
  if (team_->stopped()) team_->rethrow();
}

void RankLink::start(int plan) {
  check();
  executor_->start(plan, nullptr);
}

void RankLink::progress() {
  executor_->progress();
  check();
}

}  // namespace lockstep::collectives
