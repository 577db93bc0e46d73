// SPDX-License-Identifier: MIT
// Synchronous data-parallel training for any number of processes: the common part of Mirrored and
// CollectiveAllReduce, which differ only in how their processes find each other. All replicas take
// the same step from the same weights. Gradients are summed, weighted by the examples actually
// used, and every mirror applies the same update.
//
// Memory per replica: one block that all ranks of its host map (gradients, weights, exchange,
// scratch, norms), and its optimizer slots. It owns all slots if updates are separate, 1/P of them
// if they are fused. Threads: one permanent thread per replica, and a communication thread if cores
// are idle.
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
  std::string place_of(int rank) const override;
  std::string algorithm() const override;
  std::vector<std::string> fallbacks() const override;
  std::string reason() const override;
  double waited_seconds(engine::Replica& replica) const override;
  double messages_seconds(engine::Replica& replica) const override;
  engine::Profiler* profiler() const override { return options_.profiler; }
  void abort(const engine::Error& error) noexcept override;

  // The design and the topology are valid after `open`.
  const StepDesign& step() const { return design_; }
  const collectives::Topology& topology() const { return topology_; }
  // Returns the number of captured parts that one replica has repeated since `open`.
  std::int64_t repeated() const { return graph_recorder_ ? graph_recorder_->repeated() : 0; }

 protected:
  // Returns the replicas of this process since `open`. Not during `run`.
  const std::vector<std::unique_ptr<Mirror>>& mirrors() const { return mirrors_; }
  // The bootstrap must outlive the strategy.
  Synchronous(SynchronousOptions options, collectives::Bootstrap& bootstrap);

 private:
  static constexpr std::size_t kTotals = 5;                  // summed numbers of engine::Totals
  static constexpr std::size_t kTimes = 2;                   // numbers that each rank sends
  static constexpr std::size_t kNumbersOfRank = kTimes + 1;  // with a hash of its weights
  Mirror& mirror(engine::Replica& replica) const;
  int first_rank() const;
  engine::GraphOptions graph_options() const;
  std::unique_ptr<engine::Ops> host_ops(engine::DType dtype);  // for fallbacks; usually null
  std::size_t largest_share(std::size_t batch, int accumulate) const;
  void design(const engine::Graph& graph);
  void open_vendor();
  void watch_vendor();
  Arithmetic arithmetic() const;  // this process's arithmetic
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
  // Replaces the start's text in errors after `open`.
  std::optional<collectives::Job::Activity> running_;
  collectives::Binding binding_;
  std::uint64_t generation_ = 0;

  struct {
    std::optional<engine::GraphSpec> graph;
    engine::UpdateRule rule;
    engine::OpenOptions options;
  } open_;  // arguments of `open`
  engine::WorkSpec work_;
  StepDesign design_;
  std::string memory_sentence_;
  struct {
    std::vector<std::unique_ptr<engine::Device>> devices;
    std::unique_ptr<engine::Ops> planning_ops;  // for graphs that only plan
  } fallback_;                                  // host, for layers without device kernels
  struct {
    bool chosen = false;  // by the topology's costs
    // Says how these costs were found; empty: not requested yet.
    std::string costs_are = {};
    bool recorded = false;  // taken from a checkpoint
    // The bits may differ from the checkpoint's; known to the chief only.
    bool other_arithmetic = false;
  } plan_source_;
  // Kernels are queued on a device with its own memory.
  bool queued_ = false;
  CommunicationThreads communication_threads_;

  // Members end in reverse order: mirrors use the team, and the team uses the memory.
  struct {
    std::optional<collectives::HostMemory> memory;  // arenas and control block
    std::unique_ptr<GpuSpaces> gpu_spaces;          // if GPUs of several processes are shared
    std::optional<collectives::JobTeam> team;
  } shared_;
  std::vector<std::unique_ptr<Mirror>> mirrors_;
  std::unique_ptr<VendorSums> vendor_sums_;  // if the step has any
  std::optional<GraphRecorder> graph_recorder_;
  std::unique_ptr<collectives::ReplicaThreads> threads_;
};

}  // namespace lockstep::strategies
