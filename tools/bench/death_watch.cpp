// SPDX-License-Identifier: MIT
#include "tools/bench/death_watch.h"

#include <chrono>

#include "engine/base/error.h"
#include "tools/exit_codes.h"
#include "tools/leaving.h"

namespace lockstep::tools::bench {
namespace {

// For the error to come to the end of the program by itself.
constexpr std::chrono::milliseconds kErrorPatience{300};

}  // namespace

DeathWatch::DeathWatch(const collectives::Ranks& ranks)
    : watch_(std::make_unique<collectives::PeerWatch>(
          [this](const collectives::PeerProcess& peer) { died(collectives::death(peer)); })) {
  const int others = collectives::watch_host(ranks, "processes of the benchmark", *watch_);
  of_processes_ = others + 1 == int(ranks.local().size());
}

DeathWatch::~DeathWatch() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  watch_->release();
}

void DeathWatch::at_work(collectives::RankLink* link) {
  const std::scoped_lock lock(mutex_);
  link_ = link;
  if (link_ != nullptr && lost_) link_->stop(*lost_);
}

std::optional<engine::Error> DeathWatch::lost() const {
  const std::scoped_lock lock(mutex_);
  return lost_;
}

void DeathWatch::died(const engine::Error& what) {
  std::unique_lock lock(mutex_);
  if (lost_ || over_) return;
  lost_ = what;
  if (link_ != nullptr) link_->stop(what);
  if (changed_.wait_for(lock, kErrorPatience, [this] { return over_; })) return;
  complain(what.what());
  leave(exit_code(engine::Code::kPeerLost));
}

}  // namespace lockstep::tools::bench
