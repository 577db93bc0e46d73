// SPDX-License-Identifier: MIT
#include "tools/bench/rank_threads.h"

#include <exception>
#include <mutex>
#include <thread>

#include "collectives/bootstrap/bootstrap.h"
#include "engine/base/error.h"
#include "engine/ops/ops.h"

namespace lockstep::tools::bench {

void on_threads(const std::vector<int>& host, strategies::Session& session,
                std::chrono::milliseconds deadline, const std::function<void(const Rank&)>& body) {
  const auto bootstraps = collectives::in_memory_bootstrap(host, deadline);
  std::mutex mutex;
  // `told`: the error that another rank gave up. The other rank's error has the reason.
  std::exception_ptr first, told;
  std::vector<std::jthread> threads;
  for (const auto& bootstrap : bootstraps)
    threads.emplace_back([&, mine = bootstrap.get()] {
      try {
        const auto ops = session.device("cpu").ops(engine::DType::kFloat32, {.threads = 1});
        collectives::Job job(collectives::rank_of_each_process(*mine),
                             {.deadline = deadline, .network = session.network()});
        body({job, *ops});
      } catch (const engine::Error& error) {
        std::scoped_lock lock(mutex);
        std::exception_ptr& kind = error.code() == engine::Code::kPeerLost ? told : first;
        if (!kind) kind = std::current_exception();
      } catch (...) {
        std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  threads.clear();  // joins
  if (first || told) std::rethrow_exception(first ? first : told);
}

}  // namespace lockstep::tools::bench
