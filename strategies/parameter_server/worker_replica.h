// SPDX-License-Identifier: MIT
// One replica of a parameter server strategy: its graph, its arenas, its conversation with the
// servers. Owned by the strategy; the replica's thread uses it.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/ops/ops.h"
#include "strategies/parameter_server/parameter_server.h"

namespace lockstep::strategies {

// A base, so that the ops outlive the graph that uses them.
struct WorkerOps {
  std::unique_ptr<engine::Ops> own_ops;
};

struct ParameterServer::Worker : private WorkerOps,
                                 public engine::Replica,
                                 private engine::Context {
  Worker(int worker, const engine::GraphSpec& spec, std::unique_ptr<engine::Ops> ops,
         std::size_t rows, engine::GraphOptions options, std::uint64_t run_seed);
  void record(engine::Timeline*) override {}

  engine::Buffer weights, gradients;
  std::unique_ptr<ServerWorker> servers;
  std::optional<std::int64_t> began;  // the step whose weights were asked for
  bool pushed = false;                // gradients of that step are on their way, or there
  bool fixed = false;                 // frozen parameters were asked for in this run
  int ahead = 0;                      // steps that it was given and has not begun
  std::int64_t dealt = 0;             // batches of an evaluation
  engine::DataPosition position;
  engine::Totals last;

 private:
  std::byte* exchange(int) override { return nullptr; }
  void reduce(int) override;
};

// Replicas of one process give each other numbers.
struct ParameterServer::Meeting {
  explicit Meeting(int n) : count(n), numbers(std::size_t(n)) {}
  const int count;
  std::mutex mutex;
  std::condition_variable changed;
  int here = 0;
  std::uint64_t round = 0;
  bool broken = false;  // somebody will not come
  std::vector<std::vector<double>> numbers;
  std::vector<double> all;  // of the last round
};

}  // namespace lockstep::strategies
