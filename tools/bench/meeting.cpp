// SPDX-License-Identifier: MIT
#include "tools/bench/meeting.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <thread>
#include <utility>

#include "collectives/algorithms/algorithms.h"
#include "engine/base/error.h"

namespace lockstep::tools::bench {
namespace {

using Flag = std::atomic<std::uint64_t>;

constexpr std::uint64_t kHasLeft = std::numeric_limits<std::uint64_t>::max();
constexpr int kBareSpins = 2000;  // then yields the core
constexpr int kLooks = 1000;      // spins between two clock checks
constexpr int kTries = 5, kRounds = 4000;

}  // namespace

Meeting::Meeting(const Rank& rank)
    : rank_(rank),
      memory_(rank.job.ranks(), 4096, 4096, "meeting: "),
      exceptions_(std::uncaught_exceptions()) {
  if (of_processes()) deaths_.emplace(rank.job);
  if (rank.job.ranks().one_host()) {
    for (int other = 0; other < rank.job.size(); ++other)
      flags_.push_back(reinterpret_cast<Flag*>(memory_.block(other)));
    return;
  }
  collectives::Request request;
  request.name = "a meeting";
  request.subject = {0, 1};
  request.host = rank.job.ranks().host;
  collectives::StepPlan plan{{halving_doubling_all_reduce(request), {}, false}};
  link_ = std::make_unique<collectives::RankLink>(
      rank.job, rank.ops, std::move(plan), sizeof(float),
      halving_doubling_scratch(request) * sizeof(float), "meeting");
}

Meeting::~Meeting() {
  if (std::uncaught_exceptions() > exceptions_) leave();
}

void Meeting::leave() {
  if (!link_) flags_[std::size_t(rank_.job.rank())]->store(kHasLeft);
  if (link_) link_->stop({engine::Code::kAborted, "another rank gave up"});
}

// Reports a failed wait, unless another rank of this host did before. A rank that reports soon
// counts as dead for the others. Ranks of other hosts that are meeting get the same error.
bool Meeting::told_by_another(const engine::Error& error) {
  if (link_) {
    link_->stop(error);
    link_->executor().tell_peers();
  }
  if (!of_processes()) return false;
  Flag& said = *reinterpret_cast<Flag*>(memory_.control());
  const bool in_vain = error.code() == engine::Code::kTimeout || left_;
  const bool told = in_vain ? said.exchange(1) != 0 : said.load() != 0;
  if (told) leave();
  return told;
}

void Meeting::meet() {
  if (!link_) return flag(++met_, rank_.job.size());
  link_->start(0);
  link_->executor().wait(0, purpose_);
}

void Meeting::prepare(std::string what) {
  what_ = std::move(what);
  purpose_ = "the beginning of " + what_;
}

std::string Meeting::why(std::string_view text) const {
  return fmt::format("{}; rank {} was to begin {}", text, rank_.job.rank(), what_);
}

void Meeting::flag(std::uint64_t now, int ranks) {
  flags_[std::size_t(rank_.job.rank())]->store(now, std::memory_order_release);
  engine::Clock::time_point begin{};
  for (int rank = 0, spins = 0; rank < ranks;) {
    const std::uint64_t there = flags_[std::size_t(rank)]->load(std::memory_order_acquire);
    if (there == kHasLeft) {
      left_ = true;
      engine::fail(engine::Code::kPeerLost, "{}", why(fmt::format("rank {} gave up", rank)));
    }
    if (there >= now) {
      ++rank;
      continue;
    }
    if (++spins > kBareSpins) std::this_thread::yield();
    if (spins % kLooks != 0) continue;
    if (const auto lost = rank_.job.lost()) throw lost->with(why(lost->what()));
    if (begin == engine::Clock::time_point{}) begin = engine::Clock::now();
    if (engine::Clock::now() - begin > rank_.job.deadline())
      engine::fail(engine::Code::kTimeout, "rank {} is missing: {}: rank {} waited {} ms before it",
                   rank, what_, rank_.job.rank(), rank_.job.deadline().count());
  }
}

double Meeting::pair_ns() {
  if (link_ || rank_.job.size() < 2) return 0;
  double least = std::numeric_limits<double>::max();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    meet();
    const auto begin = engine::Clock::now();
    for (int i = 1; i <= kRounds && rank_.job.rank() < 2; ++i) flag(met_ + std::uint64_t(i), 2);
    const std::chrono::duration<double, std::nano> took = engine::Clock::now() - begin;
    least = std::min(least, took.count() / kRounds);
    met_ += kRounds;  // the same count on all ranks
  }
  meet();
  return least;
}

}  // namespace lockstep::tools::bench
