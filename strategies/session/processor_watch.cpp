// SPDX-License-Identifier: MIT
#include "strategies/session/processor_watch.h"

#include <utility>

namespace lockstep::strategies {
namespace {

// Consecutive intervals; a single one may be due to a start.
constexpr int kDisturbed = 2;

}  // namespace

ProcessorWatch::ProcessorWatch(ProcessorWatchOptions options) : options_(std::move(options)) {
  if (options_.threads > options_.processors) {
    if (options_.library_threads > 1) brief_.emplace();
    return;
  }
  if (!options_.wait)
    options_.wait = [waits = collectives::ThreadWaits()]() mutable { return waits.lap(); };
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void ProcessorWatch::watch(const std::stop_token& stop) {
  options_.wait();
  for (int disturbed = 0;;) {
    {
      std::unique_lock lock(mutex_);
      stopped_.wait_for(lock, stop, options_.interval, [] { return false; });
    }
    if (stop.stop_requested()) return;
    const collectives::ProcessorWait wait = options_.wait();
    disturbed = wait.disturbed() ? disturbed + 1 : 0;
    if (disturbed < kDisturbed) continue;
    if (options_.library_threads > 1) brief_.emplace();
    options_.log.warning(
        "the machine is busy with other work: a thread waited {:.0f} % of the time for a "
        "processor, so steps take longer; end what else runs (top shows it)",
        100 * wait.part());
    return;
  }
}

}  // namespace lockstep::strategies
