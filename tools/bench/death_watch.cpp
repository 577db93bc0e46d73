// SPDX-License-Identifier: MIT
#include "tools/bench/death_watch.h"

#include <fmt/core.h>

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
    : watch_(std::make_unique<collectives::PeerWatch>([this](const std::string& who, int pid) {
        died(fmt::format("{} (process {}) died", who, pid));
      })) {
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
  if (link_ != nullptr && !lost_.empty()) link_->stop(engine::Code::kPeerLost, lost_);
}

std::string DeathWatch::lost() const {
  const std::scoped_lock lock(mutex_);
  return lost_;
}

void DeathWatch::died(const std::string& what) {
  std::unique_lock lock(mutex_);
  if (!lost_.empty() || over_) return;
  lost_ = what;
  if (link_ != nullptr) link_->stop(engine::Code::kPeerLost, what);
  if (changed_.wait_for(lock, kErrorPatience, [this] { return over_; })) return;
  complain(what);
  leave(exit_code(engine::Code::kPeerLost));
}

}  // namespace lockstep::tools::bench
