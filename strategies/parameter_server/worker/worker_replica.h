// SPDX-License-Identifier: MIT
// One replica of a parameter server strategy: its graph, its arenas, its conversation with the
// servers. On a device whose memory is not the host's the graph's arenas lie there, and numbers
// travel through memory that both reach: weights are copied in behind all kernels so far, gradients
// out beside those of backward. Owned by the strategy; the replica's thread uses it.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/ops/ops.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/parameter_server/worker/server_worker.h"

namespace lockstep::strategies {

// A base, so that the ops outlive the graph that uses them.
struct WorkerOps {
  std::unique_ptr<engine::Ops> own_ops, host_ops = {};  // of the graph, of its fallbacks
};

struct ParameterServer::Worker : private WorkerOps,
                                 public engine::Replica,
                                 private engine::Context {
  Worker(int worker, const engine::GraphSpec& spec, WorkerOps ops, std::size_t rows,
         engine::GraphOptions options, std::uint64_t run_seed);
  void record(engine::Timeline*) override {}

  // A training, or a part of it, begins.
  void begin();
  // Weights are asked for anew: none must come while old ones are on their way to the device.
  void ask_anew();
  // Weights of the range are there: the device's become these, once.
  void arrived(engine::Range range);
  // Gradients of the range are final, where kernels are queued when those so far are done, and go
  // to the servers when they are copied, at the latest in push_all, which waits for that.
  void push(engine::Range range, const ServerWorker::Step& step);
  void push_all();

  const bool on_device;
  engine::Buffer weights, gradients;  // what the servers are told and tell
  std::unique_ptr<ServerWorker> servers;
  std::optional<std::int64_t> began;  // the step whose weights were asked for
  bool pushed = false;                // gradients of that step are on their way, or there
  bool fixed = false;                 // frozen parameters were asked for in this run
  int ahead = 0;                      // steps that it was given and has not begun
  std::int64_t assigned = 0;          // batches of an evaluation
  engine::DataPosition position;
  std::optional<std::int64_t> reported;  // the last report's step
  engine::Totals last;                   // what it told

 private:
  struct Leaving {
    std::size_t end;
    ServerWorker::Step step;
    int event;  // behind the copy
  };
  std::size_t width() const;
  void push_copied(bool all);
  std::byte* exchange(int) override { return nullptr; }
  void reduce(int) override;

  engine::Buffer device_weights_, device_gradients_;  // of a device with memory of its own
  std::vector<engine::Range> arrived_;                // of those that were asked for last
  std::deque<Leaving> leaving_;
  int events_ = 0;  // of this step
};

}  // namespace lockstep::strategies
