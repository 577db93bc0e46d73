// SPDX-License-Identifier: MIT
#include "strategies/session/ranks.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

std::unique_ptr<engine::Ops> sums(const Session& session) {
  return engine::find(session.devices(), {"cpu", 0}).ops(engine::DType::kFloat32, {.threads = 1});
}

}  // namespace

collectives::Communicator communicator(Session& session,
                                       const collectives::CommunicatorOptions& options) {
  const Connected connected{session};
  return collectives::Communicator(session.bootstrap(), sums(session), options, session.network());
}

void run_ranks(Session& session, int size,
               const std::function<void(collectives::Communicator&)>& body,
               const collectives::CommunicatorOptions& options) {
  engine::require(size >= 1, "there must be at least one rank, not {}", size);
  const auto bootstraps =
      collectives::in_memory_bootstrap(std::vector<int>(std::size_t(size), 0), options.deadline);
  std::vector<std::unique_ptr<engine::Ops>> ops;
  for (int rank = 0; rank < size; ++rank) ops.push_back(sums(session));
  std::mutex mutex;
  // Both live until all threads have ended, since their owners may read them.
  std::exception_ptr first, replaced;
  // `first` is another rank's report of its own error.
  bool told = false;
  auto keep = [&](bool only_told = false) {
    std::scoped_lock lock(mutex);
    if (first && (!told || only_told)) return;
    replaced = std::exchange(first, std::current_exception());
    told = only_told;
  };
  auto work = [&](std::size_t rank) {
    try {
      collectives::Communicator communicator(*bootstraps[rank], std::move(ops[rank]), options);
      try {
        body(communicator);
      } catch (const engine::Error& error) {
        keep(error.code() == engine::Code::kAborted);
        communicator.abort(error);
      } catch (const std::exception& error) {
        keep();
        communicator.abort({engine::Code::kAborted, error.what()});
      }
    } catch (...) {
      keep();
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < std::size_t(size); ++rank) threads.emplace_back(work, rank);
  // Joins the threads; every wait of a rank has a deadline.
  threads.clear();
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep::strategies
