// SPDX-License-Identifier: MIT
// Training with variables on servers. Each replica pulls weights and pushes gradients; the servers
// apply the optimizer. Replicas do not communicate with each other.
//
// Asynchronous: each batch goes to the replica that asks, and a push is applied when it arrives.
// Synchronous: each replica has a share of each batch, and an update waits for all replicas, or for
// `aggregate` of them. One process is the chief: it schedules steps, evaluates, saves and logs. The
// other processes follow it; they may be lost and come back (scheduler.h, scheduler_client.h). In
// this strategy `run`, `gather` and `collect` span the replicas of this process only.
//
// In asynchronous training, a server that comes back empty gets the last checkpoint. Otherwise the
// run ends with Error(kUnavailable) (server_watch.h).
//
// Threads: those of engine::Strategy, and one in the chief that polls servers. Built only with
// protobuf.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/job/replica_threads.h"
#include "engine/base/log.h"
#include "engine/device/device.h"
#include "engine/train/strategy.h"
#include "strategies/parameter_server/cluster/placement_rules.h"
#include "strategies/parameter_server/worker/scheduler_client.h"
#include "strategies/parameter_server/worker/server_layout.h"
#include "strategies/parameter_server/worker/server_worker.h"
#include "strategies/parameter_server/worker/update_options.h"

namespace lockstep::strategies {

struct ParameterServerOptions {
  std::vector<engine::Device*> devices = {};  // one per replica of this process
  std::optional<engine::DType> dtype = {};    // default: the first device's type
  int threads = 1;                            // library threads per replica
  std::optional<engine::Kernels> kernels = {};

  std::size_t servers = 1;
  // Makes a connection to a server; is called several times.
  std::function<std::unique_ptr<rpc::Connection>(std::size_t server)> connect = {};
  std::size_t near = 0;      // number of SharedConnections, for `explain`
  std::string cluster = {};  // text that processes compare; empty: none
  int workers = 0;           // the job's; 0: one per device
  int first_worker = 0;      // first worker of this process
  std::function<std::unique_ptr<rpc::Connection>()> chief = {};  // unset in the chief's process

  UpdateOptions updates = {};
  PlacementRules placement = {};
  std::string container = "train";
  std::size_t chunk_bytes = std::size_t(4) << 20;  // maximum bytes of a message

  std::chrono::milliseconds deadline{60000};          // per call, and for missing workers
  std::chrono::milliseconds heartbeat_timeout{5000};  // after which a silent process is lost
  std::chrono::milliseconds poll_interval{1000};      // between two polls of the servers
  engine::Profiler* profiler = nullptr;               // this process's; outlives the strategy
  engine::Log log = engine::Log();
};

// Returns the device's default type if servers can keep variables in it, else float32.
engine::DType kept_dtype(const engine::Device& device);

class ParameterServer : public engine::Strategy {
 public:
  // Throws Error(kInvalid) for options that contradict each other.
  explicit ParameterServer(ParameterServerOptions options);
  // Tells the other processes that the job is over or has failed.
  ~ParameterServer() override;
  // Does the first part of the destructor. Only the destructor may follow.
  void close();
  // Returns the chief's service for the other processes, which call it until `close` returns.
  rpc::Service& scheduler();

  std::string name() const override { return "parameter_server"; }
  std::vector<std::string> fallbacks() const override;
  engine::Membership membership() const override;
  void open(const engine::GraphSpec& graph, const engine::UpdateRule& rule,
            const engine::OpenOptions& options) override;
  void run_collectively(const std::function<void()>& body, std::string_view) override { body(); }
  void assign(const engine::WorkSpec& work) override;
  void run(const std::function<void(engine::Replica&)>& body) override;
  std::optional<engine::Work> next(engine::Replica& replica) override;
  void staged(engine::Replica& replica) override;
  void before_forward(engine::Replica& replica, engine::Range range) override;
  void gradient_ready(engine::Replica& replica, engine::Range range) override;
  void finish(engine::Replica& replica) override;
  engine::Totals report(engine::Replica& replica, std::int64_t step,
                        const engine::Totals& mine) override;
  engine::Totals synchronize(engine::Replica& replica) override;
  std::vector<double> gather(engine::Replica& replica, std::span<const double> mine,
                             std::string_view what) override;
  std::vector<std::string> collect(const std::string& mine, std::string_view) override {
    return {mine};
  }
  std::vector<engine::Piece> pieces_to_save(engine::Replica&) override { return {}; }
  std::vector<engine::Piece> pieces_to_restore(engine::Replica&) override { return {}; }
  std::vector<engine::Shard> save(engine::Replica& replica, engine::Checkpoints& checkpoints,
                                  std::int64_t step, std::string_view what) override;
  void restore(engine::Replica& replica, engine::Checkpoints& checkpoints, std::int64_t step,
               const std::vector<std::string>& fresh) override;
  std::string plan() const override { return {}; }
  std::string explain() const override;
  std::string placement() const override;
  std::string algorithm() const override { return "parameter_server"; }
  std::string reason() const override;
  double waited_seconds(engine::Replica& replica) const override;
  std::optional<engine::Traffic> traffic(engine::Replica& replica) const override;
  engine::Profiler* profiler() const override { return options_.profiler; }
  void abort(const engine::Error& error) noexcept override;
  bool follows() const override { return client_ != nullptr; }
  std::optional<engine::WorkSpec> assignment() override;
  void lead() override;
  void gave_up(const engine::Error& why) override;
  void released() override;
  std::optional<engine::Standing> standing() const override;

  // Returns the counts of this process's replicas since `open`.
  ServerWorker::Counts counts() const;
  // Returns the number of processes that were lost.
  int lost() const;
  // Returns a copy of the servers' weights in the order of an arena with whole tables. For tests;
  // not during `run`.
  std::vector<double> weights();

 private:
  struct Chief;
  struct Worker;
  Worker& worker(engine::Replica& replica) const;
  WorkSource& source() const;
  int local() const { return int(options_.devices.size()); }
  std::string explain_messages() const;
  std::string job_text(const engine::GraphSpec& graph, const engine::OpenOptions& options) const;
  std::vector<std::unique_ptr<rpc::Connection>> connections(std::uint64_t seed) const;
  ServerWorkerTerms worker_terms(int worker) const;
  void connect_workers();
  void forget_loss();
  void open_servers(const engine::Graph& graph, std::uint64_t seed);
  void end_step(Worker& worker);
  engine::Totals last_report(Worker& worker);
  void wait_for_others();
  void attach_again(const engine::Error& error);
  void run_once(const std::function<void(engine::Replica&)>& body);
  void fail(const engine::Error& why, bool from_chief = false);

  ParameterServerOptions options_;
  engine::DType dtype_ = engine::DType::kFloat32;
  std::optional<ServerLayout> layout_;
  std::uint64_t generation_ = 0;
  std::unique_ptr<Chief> chief_;             // in the chief's process only
  std::unique_ptr<SchedulerClient> client_;  // in the other processes only

  engine::WorkSpec work_;
  Segment segment_;
  bool training_ = false;  // the next `run` is a segment
  bool broken_ = false;    // workers must be connected again
  bool closed_ = false;
  std::string job_;           // text that processes compare
  std::int64_t version_ = 0;  // synchronous: the servers' version between segments

  std::vector<std::unique_ptr<engine::Device>> host_devices_;  // devices of fallbacks
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<collectives::Bootstrap>> exchange_;  // all-gather of the replicas
  std::unique_ptr<collectives::ReplicaThreads> threads_;

  // Guards the members below, and each worker's `servers`, which `fail` uses from other threads.
  std::mutex mutex_;
  std::optional<engine::Error> failed_;
  // `failed_` is a loss of this process, which may come back.
  bool from_chief_ = false;
};

}  // namespace lockstep::strategies
