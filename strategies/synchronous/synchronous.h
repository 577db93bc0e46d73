// SPDX-License-Identifier: MIT
// Synchronous data-parallel training, for any number of processes: what Mirrored and
// CollectiveAllReduce have in common, which is everything but how their processes find each other.
// Every replica takes the same step from the same weights; gradients are summed, weighted by the
// examples really seen, and every mirror takes the same update.
//
// Memory: per replica one block that all ranks of its host map (gradients, weights, exchange,
// scratch, norms), and the optimizer slots that it owns: all of them where updates are separate,
// 1/P where they are fused. Threads: one permanent thread a replica; a communication thread beside
// it where cores are idle.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/job/host_memory.h"
#include "collectives/job/job.h"
#include "collectives/job/job_team.h"
#include "collectives/job/replica_threads.h"
#include "collectives/topology/binding.h"
#include "collectives/topology/topology.h"
#include "engine/train/strategy.h"
#include "strategies/synchronous/communication_threads.h"
#include "strategies/synchronous/gpu_path.h"
#include "strategies/synchronous/gpu_spaces.h"
#include "strategies/synchronous/graph_recorder.h"
#include "strategies/synchronous/mirror.h"
#include "strategies/synchronous/plan_record.h"
#include "strategies/synchronous/synchronous_options.h"
#include "strategies/synchronous/vendor_sums.h"

namespace lockstep::strategies {

class Synchronous : public engine::Strategy {
 public:
  ~Synchronous() override;
  engine::Membership membership() const override;
  void open(const engine::GraphSpec& graph, const engine::UpdateRule& rule,
            const engine::OpenOptions& options) override;
  void run_collectively(const std::function<void()>& body, std::string_view what) override;
  void assign(const engine::WorkSpec& work) override;
  void run(const std::function<void(engine::Replica&)>& body) override;
  std::optional<engine::Work> next(engine::Replica& replica) override;
  void staged(engine::Replica& replica) override;
  void compute(engine::Replica& replica, int part, std::size_t global_batch,
               const std::function<void()>& queue) override;
  void before_forward(engine::Replica& replica, engine::Range range) override;
  void gradient_ready(engine::Replica& replica, engine::Range range) override;
  void finish(engine::Replica& replica) override;
  engine::Totals report(engine::Replica& replica, std::int64_t step,
                        const engine::Totals& mine) override;
  engine::Totals synchronize(engine::Replica& replica) override;
  void average_statistics(engine::Replica& replica, std::string_view what) override;
  std::vector<double> gather(engine::Replica& replica, std::span<const double> mine,
                             std::string_view what) override;
  std::vector<std::string> collect(const std::string& mine, std::string_view what) override;
  std::vector<engine::Piece> pieces_to_save(engine::Replica& replica) override;
  std::vector<engine::Piece> pieces_to_restore(engine::Replica& replica) override;
  void restore(engine::Replica& replica, engine::Checkpoints& checkpoints, std::int64_t step,
               const std::vector<std::string>& fresh) override;
  std::string plan() const override;
  std::string explain() const override;
  std::string placement() const override;
  std::string algorithm() const override;
  std::vector<std::string> fallbacks() const override;
  std::string reason() const override;
  double waited_seconds(engine::Replica& replica) const override;
  double messages_seconds(engine::Replica& replica) const override;
  engine::Profiler* profiler() const override { return options_.profiler; }
  void abort(const engine::Error& error) noexcept override;

  // Since `open`.
  const StepDesign& step() const { return design_; }
  const collectives::Topology& topology() const { return topology_; }
  // Parts of steps that were repeated as recordings, of one replica, since `open`.
  std::int64_t repeated() const { return graph_recorder_ ? graph_recorder_->repeated() : 0; }

 protected:
  // The replicas of this process, since `open`. Outside of run.
  const std::vector<std::unique_ptr<Mirror>>& mirrors() const { return mirrors_; }
  // The bootstrap outlives the strategy.
  Synchronous(SynchronousOptions options, collectives::Bootstrap& bootstrap);

 private:
  static constexpr std::size_t kTotals = 5;  // numbers of engine::Totals that are sums ...
  static constexpr std::size_t kTimes = 2;   // ... and those of which each rank's are sent,
  static constexpr std::size_t kNumbersOfRank = kTimes + 1;  // with a hash of its weights
  Mirror& mirror(engine::Replica& replica) const;
  int first_rank() const;
  engine::GraphOptions graph_options() const;
  std::unique_ptr<engine::Ops> host_ops(engine::DType dtype);  // for fallbacks; mostly null
  std::size_t largest_share(std::size_t batch, int accumulate) const;
  void design(const engine::Graph& graph);
  void open_vendor();
  void watch_vendor();
  Arithmetic arithmetic() const;  // of this process
  void plan_memory(engine::Ops& ops, const engine::Graph& graph);
  void map_memory();
  void open_executors();
  void find_processors();
  std::chrono::milliseconds deadline() const;
  void set_start_values();
  void start_helpers(std::vector<std::jthread>& helpers, const std::atomic<bool>& over);
  void learn_deadline(Mirror& mirror);
  void start_buckets(Mirror& mirror, std::size_t end);
  std::string why_no_graphs() const;
  void open_graph_recorder();
  std::string graphs_sentence() const;
  bool record(Mirror& mirror, int part, const std::function<void()>& queue);
  engine::Totals totals_of(Mirror& mirror);

  SynchronousOptions options_;
  collectives::Topology topology_;
  std::optional<collectives::Job> job_;
  std::optional<GpuPath> gpu_path_;
  std::optional<collectives::Job::Activity> running_;  // since `open`: nothing is said of a start
  collectives::Binding binding_;
  std::uint64_t generation_ = 0;

  struct {
    std::optional<engine::GraphSpec> graph;
    engine::UpdateRule rule;
    engine::OpenOptions options;
  } open_;  // what `open` was called with
  engine::WorkSpec work_;
  StepDesign design_;
  std::string memory_sentence_;
  struct {
    std::vector<std::unique_ptr<engine::Device>> devices;
    std::unique_ptr<engine::Ops> planning_ops;  // of graphs that only plan
  } fallback_;  // of the host, for layers without kernels for the device
  struct {
    bool chosen = false;            // by the topology's costs ...
    std::string costs_are = {};     // ... and how these were found; empty: nobody has asked
    bool recorded = false;          // in a checkpoint ...
    bool other_arithmetic = false;  // ... but the bits are not; the chief knows
  } plan_source_;
  bool queued_ = false;  // kernels are, on a device with memory of its own
  CommunicationThreads communication_threads_;

  // The order of these is the order of ending, last first: mirrors use the team, the team the
  // memory.
  struct {
    std::optional<collectives::HostMemory> memory;  // arenas and control block
    std::unique_ptr<GpuSpaces> gpu_spaces;          // where GPUs of several processes are shared
    std::optional<collectives::JobTeam> team;
  } shared_;
  std::vector<std::unique_ptr<Mirror>> mirrors_;
  std::unique_ptr<VendorSums> vendor_sums_;  // where the step has any
  std::optional<GraphRecorder> graph_recorder_;
  std::unique_ptr<collectives::ReplicaThreads> threads_;
};

}  // namespace lockstep::strategies
