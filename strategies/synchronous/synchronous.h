// SPDX-License-Identifier: MIT
// Synchronous data-parallel training, for any number of processes: what Mirrored and
// CollectiveAllReduce have in common, which is everything but how their processes find each other.
// Every replica takes the same step from the same weights; gradients are summed, weighted by the
// examples really seen, and every mirror takes the same update.
//
// Memory: per replica one block that all ranks of its host map (gradients, weights, exchange,
// scratch, norms), and the optimizer slots that it owns: all of them where updates are apart, 1/P
// where they are fused. Threads: one permanent thread a replica; a communication thread beside it
// where cores are idle.
#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/cost/memory_access.h"
#include "collectives/job/calibration.h"
#include "collectives/job/host_memory.h"
#include "collectives/job/network.h"
#include "collectives/job/replica_threads.h"
#include "collectives/run/executor.h"
#include "collectives/run/peer_watch.h"
#include "collectives/topology/binding.h"
#include "collectives/topology/topology.h"
#include "engine/base/log.h"
#include "engine/device/device.h"
#include "engine/device/gpu_topology.h"
#include "engine/train/strategy.h"
#include "strategies/synchronous/communication_threads.h"
#include "strategies/synchronous/gpu_sharing.h"
#include "strategies/synchronous/gpu_spaces.h"
#include "strategies/synchronous/memory_use.h"
#include "strategies/synchronous/mirror.h"
#include "strategies/synchronous/plan_record.h"
#include "strategies/synchronous/step_recordings.h"
#include "strategies/synchronous/vendor_sums.h"

namespace lockstep::strategies {

struct SynchronousOptions {
  StepChoices step = {};
  std::vector<engine::Device*> devices = {};  // one entry a replica of this process; at least one
  // How GPUs of this machine are linked: where replicas are on several, plans are priced by it.
  engine::GpuTopology gpus = {};
  int threads = 1;   // library threads of a replica
  bool bind = true;  // replicas to processors of their own, where that fits
  std::optional<bool> communication_thread = {};  // else communication_threads.h decides
  // Of every wait for another replica; without it 60 s or 20 median steps, whichever is longer.
  std::optional<std::chrono::milliseconds> deadline = {};
  collectives::Network network = {};  // between hosts
  // For algorithms and places of the update that are not asked for, the planner chooses by what the
  // ranks were measured to cost each other (calibration.h), once a strategy, unless `cost_cache`
  // has it: on one host sums alone are timed, so that the start stays short. Else by assumed costs.
  bool measured = false;
  std::filesystem::path cost_cache = {};  // folder of measured costs; empty: none are kept
  std::size_t most_touched = 0;           // bytes, while they are measured (calibration.h)
  // Of the batch, by rank, the same in all processes; empty: equal.
  std::vector<std::uint64_t> shares = {};
  bool checksums = true;                 // confirm that mirrors are equal while training
  std::size_t memory_limit = 0;          // bytes of this process in all; 0: what there is
  engine::Profiler* profiler = nullptr;  // that looks at this process; outlives the strategy
  engine::Log log = engine::Log();
  VendorLibrary vendor = {};            // for GPUs of several processes
  std::function<void()> hook = {};      // tests: called between blocks, e.g. to delay
  std::optional<MemoryRoom> room = {};  // tests: instead of what the system says
};

class Synchronous : public engine::Strategy {
 public:
  ~Synchronous() override;
  engine::Membership membership() const override;
  void open(const engine::GraphSpec& graph, const engine::UpdateRule& rule,
            const engine::OpenOptions& options) override;
  void together(const std::function<void()>& body, std::string_view what) override;
  void deal(const engine::WorkSpec& work) override;
  void run(const std::function<void(engine::Replica&)>& body) override;
  std::optional<engine::Work> next(engine::Replica& replica) override;
  void staged(engine::Replica& replica) override;
  void compute(engine::Replica& replica, int part, std::size_t whole,
               const std::function<void()>& queue) override;
  void before_forward(engine::Replica& replica, engine::Range range) override;
  void gradient_ready(engine::Replica& replica, engine::Range range) override;
  void finish(engine::Replica& replica) override;
  engine::Totals report(engine::Replica& replica, std::int64_t step,
                        const engine::Totals& mine) override;
  engine::Totals settle(engine::Replica& replica) override;
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

  // For tests and tools: the whole step as a plan, checked symbolically; empty when it is right.
  std::string verify() const;
  const StepDesign& step() const { return design_; }  // since `open`
  const collectives::Topology& topology() const { return topology_; }
  // A copy of a local replica's weights, as float64, in arena order. Outside of run.
  std::vector<double> weights(int local) const;
  std::size_t owned_elements(int local) const;
  // Buckets whose update was done before backward had ended, so far.
  std::int64_t overlapped() const { return overlapped_; }
  // Reductions of layers that began while buckets were in flight, so far.
  std::int64_t reductions_beside() const;
  // Parts of steps that were repeated as recordings, of one replica, since `open`.
  std::int64_t repeated() const { return recordings_ ? recordings_->repeated() : 0; }
  void corrupt(int local, std::size_t element);  // tests: flips a bit of one weight of one mirror

 protected:
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
  void check_devices(const engine::Ops& ops) const;            // of the first replica
  void connect_devices() const;
  std::size_t largest_share(std::size_t batch, int accumulate) const;
  void design(const engine::Graph& graph);
  void find_vendor();
  void look_for_vendor();
  void share_gpus();
  void say_of_gpus(const GpuSharing& found);
  bool vendor_adds() const;
  void find_sharing_costs(const GpuSharing& sharing);
  void open_vendor();
  void watch_vendor();
  void find_costs();
  void find_gpu_costs();
  collectives::Calibration measured_costs(const collectives::CalibrationOptions& calibration);
  Arithmetic arithmetic() const;  // of this process
  void plan_memory(engine::Ops& ops, const engine::Graph& graph);
  std::size_t local_processes() const;
  void compare(const std::string& mine, const std::string& what, bool heading = false);
  void leave_together(const std::string& what);
  void map_memory(const collectives::JobRanks& ranks);
  void open_executors(const collectives::JobRanks& ranks);
  std::size_t sent_in_step() const;
  void find_processors();
  std::chrono::milliseconds deadline() const;
  void set_start_values();
  void start_helpers(std::vector<std::jthread>& helpers, const std::atomic<bool>& over);
  void learn_deadline(Mirror& mirror);
  void start_buckets(Mirror& mirror, std::size_t end);
  std::string no_recordings() const;
  void open_recordings();
  std::string graphs_sentence() const;
  bool record(Mirror& mirror, int part, const std::function<void()>& queue);
  void check_mirrors(Mirror& mirror, const double* hashes);
  std::string mirrors_sentence() const;
  engine::Totals totals_of(Mirror& mirror);

  SynchronousOptions options_;
  collectives::Bootstrap& bootstrap_;
  collectives::Topology topology_;
  collectives::MemoryAccess access_;  // of my host, since `open`
  collectives::Binding binding_;
  std::vector<int> host_;  // of each rank
  std::uint64_t generation_ = 0;

  std::optional<engine::GraphSpec> graph_;
  engine::UpdateRule rule_;
  engine::OpenOptions open_;
  engine::WorkSpec work_;
  StepDesign design_;
  std::string memory_sentence_;
  std::vector<std::unique_ptr<engine::Device>> host_devices_;  // of fallbacks
  std::unique_ptr<engine::Ops> planning_ops_;                  // likewise, of graphs that only plan
  bool planner_chose_ = false;                                 // by the topology's costs ...
  std::string costs_are_ = {};   // ... and how these were found; empty: nobody has asked for them
  bool planned_before_ = false;  // the plan is a checkpoint's ...
  bool queued_ = false;          // kernels are, on a device with memory of its own
  std::string vendor_, no_vendor_;   // the library's sums that are best, or why there are none
  std::optional<bool> shares_gpus_;  // with other processes of some host, since `open` ...
  std::string gpu_exchange_;         // ... and the sentence that says so; empty: none
  bool other_arithmetic_ = false;    // ... but the bits are not; the chief knows
  CommunicationThreads communication_threads_;

  // The order of these is the order of ending, last first: mirrors use the team, the team the
  // memory.
  std::optional<collectives::HostMemory> memory_;  // arenas and control block
  std::unique_ptr<GpuSpaces> gpu_spaces_;          // where GPUs of several processes are shared
  std::optional<collectives::Team> team_;
  std::vector<std::unique_ptr<Mirror>> mirrors_;
  std::unique_ptr<VendorSums> vendor_sums_;  // where the step has any
  std::optional<StepRecordings> recordings_;
  std::unique_ptr<collectives::ReplicaThreads> threads_;
  std::mutex watch_mutex_;             // these two against the watch's thread: team_,
  bool meeting_ = true;                // whether an exchange goes on, or follows,
  std::optional<engine::Error> lost_;  // and who died while one did
  std::atomic<bool> calibrating_{false};
  std::atomic<std::int64_t> overlapped_{0};
  std::unique_ptr<collectives::PeerWatch> watch_;  // last: its thread uses these, stops the team
};

}  // namespace lockstep::strategies
