// SPDX-License-Identifier: MIT
#include "tools/bench/death_watch.h"

#include <chrono>

#include "engine/base/error.h"
#include "tools/exit_codes.h"
#include "tools/leaving.h"

namespace lockstep::tools::bench {
namespace {

// Time for the error to reach the end of the program by itself.
constexpr std::chrono::milliseconds kErrorTimeout{300};

}  // namespace

DeathWatch::DeathWatch(collectives::Job& job)
    : stopper_(job,
               [this](const engine::Error& why) {
                 if (why.code() != engine::Code::kPeerLost) return;
                 {
                   const std::scoped_lock lock(mutex_);
                   if (!lost_) lost_ = why;
                 }
                 changed_.notify_all();
               }),
      thread_([this](const std::stop_token& over) { serve(over); }) {}

void DeathWatch::serve(const std::stop_token& over) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, over, [this] { return lost_.has_value(); });
  changed_.wait_for(lock, over, kErrorTimeout, [] { return false; });
  if (over.stop_requested()) return;
  complain(lost_->what());
  leave(exit_code(engine::Code::kPeerLost));
}

}  // namespace lockstep::tools::bench
