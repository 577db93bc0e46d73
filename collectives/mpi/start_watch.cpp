// SPDX-License-Identifier: MIT
#include "collectives/mpi/start_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/mpi/leave.h"
#include "collectives/mpi/siblings.h"
#include "collectives/run/peer_watch.h"
#include "engine/base/error.h"

namespace lockstep::collectives::mpi {
namespace {

using engine::Clock;

// Returns "rank 2" if every rank of the job is on this host, else how many are missing.
std::string missing(const Place& me, const std::vector<Sibling>& siblings) {
  if (me.size != me.local_size) {
    return fmt::format("{} of the {} processes of this host",
                       me.local_size - 1 - int(siblings.size()), me.local_size);
  }
  std::string ranks;
  for (int rank = 0; rank < me.size; ++rank) {
    const bool seen = std::any_of(siblings.begin(), siblings.end(),
                                  [&](const Sibling& s) { return s.rank == rank; });
    if (rank != me.rank && !seen)
      ranks += fmt::format("{}rank {}", ranks.empty() ? "" : ", ", rank);
  }
  return ranks;
}

}  // namespace

struct StartWatch::State {
  State(Place here, Lost callback, std::chrono::milliseconds most)
      : me(here),
        lost(callback ? std::move(callback) : Lost([](const std::string& what) {
          leave(what, std::chrono::milliseconds(250));
        })),
        timeout(most),
        watch([this](const PeerProcess& peer) {
          gone(fmt::format("{} (pid {})", name(peer), peer.pid));
        }) {
    if (me.local_size > 1) {
      thread = std::jthread([this](const std::stop_token& stop) { scan(stop); });
    }
  }

  // Reports a death. If another process is stopped, it reports that one, since the others may have
  // left after waiting for it.
  void gone(const std::string& who) {
    const std::string cause = stopped_siblings();
    lost(cause.empty() ? who + " died while the job was starting" : cause);
  }

  // Searches for siblings until all are found. `known` siblings are being watched. `since`: the
  // time from which a sibling has been missing although the launcher has started all.
  void scan(const std::stop_token& stop) {
    std::vector<Sibling> known;
    constexpr auto kNever = Clock::time_point::max();
    auto since = kNever;
    auto pause = std::chrono::milliseconds(10);
    while (!stop.stop_requested()) {
      const Family family = look_for_family();
      for (const Sibling& sibling : family.siblings) {
        if (std::find(known.begin(), known.end(), sibling) != known.end()) continue;
        known.push_back(sibling);
        try {
          watch.add({{sibling.rank}, sibling.pid});
        } catch (const engine::Error&) {
          return;  // no pidfds: MPI_Init's deadline remains
        }
      }
      if (int(known.size()) + 1 >= me.local_size) return;
      if (!family.settled)
        since = kNever;
      else if (since == kNever)
        since = Clock::now();
      if (since != kNever && Clock::now() - since >= timeout) {
        gone(missing(me, known));
        return;
      }
      std::unique_lock lock(mutex);
      stopped.wait_for(lock, stop, pause, [] { return false; });
      pause = std::min(pause * 2, std::chrono::milliseconds(100));
    }
  }

  const Place me;
  Lost lost;
  std::chrono::milliseconds timeout;
  PeerWatch watch;
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::jthread thread;  // last: joined first
};

StartWatch::StartWatch(Place here, Lost lost, std::chrono::milliseconds timeout)
    : state_(std::make_unique<State>(here, std::move(lost), timeout)) {}

StartWatch::~StartWatch() {
  release();
}

void StartWatch::release() {
  state_->watch.release();
  state_->thread.request_stop();
}

}  // namespace lockstep::collectives::mpi
