// SPDX-License-Identifier: MIT
// A replica of a parameter server strategy: its graph, its arenas, and its communication with the
// servers. If the device has its own memory, the graph's arenas are there, and values pass through
// memory that host and device share. Weights are copied in after all queued kernels; gradients are
// copied out concurrently with backward. Owned by the strategy; only the replica's thread uses it.
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

// Owns the ops. It is a base class, so that the ops outlive the graph that uses them.
struct WorkerOps {
  std::unique_ptr<engine::Ops> own_ops, host_ops = {};  // for the graph; for its fallbacks
};

struct ParameterServer::Worker : private WorkerOps,
                                 public engine::Replica,
                                 private engine::Context {
  Worker(int worker, const engine::GraphSpec& spec, WorkerOps ops, std::size_t rows,
         engine::GraphOptions options, std::uint64_t run_seed);
  void record(engine::Timeline*) override {}

  // Begins training or a part of it.
  void begin();
  // Prepares for new weights: waits until no old weights are being copied to the device.
  void ask_anew();
  // Copies newly arrived weights of the range to the device, once.
  void arrived(engine::Range range);
  // Sends the final gradients of the range. If kernels are queued, they are final after the kernels
  // queued so far. They are sent after the copy, at the latest in push_all, which waits for it.
  void push(engine::Range range, const ServerWorker::Step& step);
  void push_all();

  const bool on_device;
  engine::Buffer weights, gradients;  // exchanged with the servers
  std::unique_ptr<ServerWorker> servers;
  std::optional<std::int64_t> began;  // step whose weights were requested
  // Gradients of that step are sent or being sent.
  bool pushed = false;
  bool fixed = false;  // frozen parameters were requested in this run
  // Steps that it was assigned and has not begun.
  int ahead = 0;
  std::int64_t assigned = 0;  // batches of an evaluation
  engine::DataPosition position;
  std::optional<std::int64_t> reported;  // the last report's step
  engine::Totals last;                   // totals of that report

 private:
  struct Leaving {
    std::size_t end;
    ServerWorker::Step step;
    int event;  // recorded after the copy
  };
  std::size_t width() const;
  void push_copied(bool all);
  std::byte* exchange(int) override { return nullptr; }
  void reduce(int) override;

  engine::Buffer device_weights_, device_gradients_;  // if the device has its own memory
  std::vector<engine::Range> arrived_;                // ranges that arrived since the last request
  std::deque<Leaving> leaving_;
  int events_ = 0;  // number of events in this step
};

}  // namespace lockstep::strategies
