// SPDX-License-Identifier: MIT
// The work of replicas, and its end. See synchronous.h.
#include <atomic>
#include <thread>
#include <vector>

#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

using engine::Error;

namespace {

// Maximum sleep of a communication thread. Events wake it but may arrive just before it sleeps;
// each poll costs some microseconds of a core that it may share.
constexpr std::chrono::milliseconds kHelperSleep{5};

}  // namespace

// Sends rank 0's values to all others as a sum with zeros. Each owner draws its masters.
void Synchronous::set_start_values() {
  run([&](engine::Replica& replica) {
    Mirror& m = mirror(replica);
    m.download();
    if (m.rank == 0) m.graph.initialise(open_.options.seed, m.host_weights());
    m.set_masters(open_.options.seed);
    m.upload();
    m.executor().start(design_.stages.start, nullptr);
    m.executor().finish(design_.stages.start, "start values of the weights");
  });
}

void Synchronous::run(const std::function<void(engine::Replica&)>& body) {
  engine::require(running_.has_value(), "{}: run before open", name());
  std::atomic<bool> over{false};
  std::vector<std::jthread> helpers;
  auto end_helpers = [&] {
    over = true;
    for (const auto& mirror : mirrors_) mirror->executor().wake();
    helpers.clear();  // joins
  };
  auto failed = [this](const std::exception& e) { abort(engine::as_error(e)); };
  try {
    if (communication_threads_.own) start_helpers(helpers, over);
    threads_->run(
        [&](int index) {
          Mirror& mirror = *mirrors_[std::size_t(index)];
          body(mirror);
          synchronize(mirror);
        },
        failed);
  } catch (...) {
    end_helpers();
    // All threads tell their peers at once, since each may wait for peers that do not read.
    threads_->run([&](int i) { mirrors_[std::size_t(i)]->executor().tell_peers(); }, failed);
    throw;
  }
  end_helpers();
}

// Starts a communication thread for each replica, which runs until `over`.
void Synchronous::start_helpers(std::vector<std::jthread>& helpers, const std::atomic<bool>& over) {
  for (const auto& mirror : mirrors_) {
    helpers.emplace_back([this, &over, m = mirror.get()] {
      while (!over) {
        if (m->executor().progress()) continue;
        if (shared_.team->stopped()) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        } else {
          m->executor().sleep(kHelperSleep);
        }
      }
    });
  }
}

void Synchronous::abort(const Error& error) noexcept {
  job_->stop(error);
}

}  // namespace lockstep::strategies
