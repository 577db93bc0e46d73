// SPDX-License-Identifier: MIT
// Training with variables on servers: each replica pulls weights, and pushes gradients to where the
// optimizer's update is made. Replicas never meet.
//
// Asynchronous: each batch goes to whichever replica asks; a push is applied as it comes.
// Synchronous: each replica has its share of each batch, and the update waits for all, or for so
// many as `aggregate` says. One process is the chief: its replicas are the first workers, it deals
// out the steps, evaluates, saves and speaks. The others follow (coordinator.h, follower.h): they
// may be lost, and come again. What happens in `run`, `gather`, `collect` is this process's own.
//
// Servers keep what they have while the chief works with them. One that comes back without it is
// given the last checkpoint when training is asynchronous (what was pushed since is lost, and
// counted there); else the run ends with Error(kUnavailable), which `FitOptions::retries` repeats.
//
// Threads: the port's; beside them one in the chief that looks after the servers. A step allocates
// what its messages take. Built only where there is protobuf.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/job/replica_threads.h"
#include "engine/base/log.h"
#include "engine/device/device.h"
#include "engine/train/strategy.h"
#include "strategies/parameter_server/cluster/placement_rules.h"
#include "strategies/parameter_server/worker/arena_shards.h"
#include "strategies/parameter_server/worker/coordinator.h"
#include "strategies/parameter_server/worker/follower.h"
#include "strategies/parameter_server/worker/server_worker.h"
#include "strategies/parameter_server/worker/servers.h"
#include "strategies/parameter_server/worker/update_options.h"

namespace lockstep::strategies {

struct ParameterServerOptions {
  std::vector<engine::Device*> devices = {};  // one entry a replica of this process
  std::optional<engine::DType> dtype = {};    // else what the first device prefers
  int threads = 1;                            // library threads of a replica
  std::optional<engine::Kernels> kernels = {};

  // Of the job: how many servers, a connection to each, to be made several times; how many workers,
  // and the first of this process.
  std::size_t servers = 1;
  std::function<std::unique_ptr<rpc::Connection>(std::size_t server)> connect = {};
  std::size_t near = 0;      // servers whose connections are SharedConnections, for `explain`
  std::string cluster = {};  // as text, which processes compare; empty: none
  int workers = 0;           // 0: as many as there are devices here
  int first_worker = 0;
  std::function<std::unique_ptr<rpc::Connection>()> chief = {};  // of those that follow

  UpdateOptions updates = {};
  PlacementRules placement = {};
  std::string container = "train";
  std::size_t chunk_bytes = std::size_t(4) << 20;  // of a message, at most

  // Of each call; of waiting for workers without which nothing goes on.
  std::chrono::milliseconds deadline{60000};
  std::chrono::milliseconds patience{5000};  // with a silent process, until it is taken for lost
  std::chrono::milliseconds look{1000};      // after the servers, every so often
  engine::Profiler* profiler = nullptr;      // that looks at this process; outlives the strategy
  engine::Log log = engine::Log();
};

// What a device prefers of the types that servers keep variables in.
engine::DType kept_dtype(const engine::Device& device);

class ParameterServer : public engine::Strategy {
 public:
  // Throws Error(kInvalid) for options that cannot be.
  explicit ParameterServer(ParameterServerOptions options);
  // Tells the others that the job is over, or that it failed.
  ~ParameterServer() override;
  // What the destructor does first, for who must do something in between. Nothing else is called
  // then.
  void close();
  // What those that follow call, until after `close`. Of the chief alone.
  rpc::Service& coordinator();

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
  bool follows() const override { return follower_ != nullptr; }
  std::optional<engine::WorkSpec> order() override;
  void lead() override;
  void gave_up(const engine::Error& why) override { why_failed_ = why.what(); }
  void released() override;
  std::optional<engine::Standing> standing() const override;

  // Of this process's replicas since `open`, and of processes that were lost.
  ServerWorker::Counts counts() const;
  int lost() const { return coordinator_ ? coordinator_->lost() : 0; }
  // A copy of all weights as the servers have them, as float64, in the order of an arena that holds
  // whole tables: for tests. Outside of run.
  std::vector<double> weights();

 private:
  struct Worker;
  struct Meeting;  // of this process's replicas
  struct Saved {
    std::string folder;
    std::int64_t step = 0;
    bool own = false;  // written in this generation
  };
  Worker& worker(engine::Replica& replica) const;
  WorkSource& source() const;
  int local() const { return int(options_.devices.size()); }
  bool chief() const { return follower_ == nullptr; }
  std::string of_bodies() const;
  std::string of_tables() const;
  std::string job_text(const engine::GraphSpec& graph, const engine::OpenOptions& options) const;
  std::vector<std::unique_ptr<rpc::Connection>> connections(std::uint64_t seed) const;
  ServerWorkerTerms worker_terms(int worker) const;
  void converse();
  void recover();
  void place(const engine::Graph& graph);
  void end_step(Worker& worker);
  engine::Totals last_report(Worker& worker);
  void wait_for_others();
  void attach_again(const engine::Error& error);
  void run_once(const std::function<void(engine::Replica&)>& body);
  void fail(const engine::Error& why, bool from_chief = false);
  void look_after_servers();
  void recover(std::size_t server);
  void stop_looking();

  ParameterServerOptions options_;
  engine::DType dtype_ = engine::DType::kFloat32;
  engine::UpdateRule rule_;
  VariablePlacement placement_;
  std::optional<ArenaShards> shards_;
  std::optional<RowShards> rows_;         // of tables that workers hold in part
  std::vector<engine::Parameter> whole_;  // as if they held all of them
  std::size_t whole_elements_ = 0;
  std::uint64_t generation_ = 0;
  std::unique_ptr<Coordinator> coordinator_;  // the chief's
  std::unique_ptr<Follower> follower_;        // the others'
  std::unique_ptr<Servers> servers_;          // the chief's

  engine::WorkSpec work_;
  Segment segment_;
  bool training_ = false;            // the next `run` is a segment's
  bool gathered_ = true;             // the others had their time to come
  std::atomic<bool> taken_ = false;  // another chief has the servers
  std::string job_;                  // what the chief compares
  std::string why_failed_ = "its program ended early";
  bool led_ = false, released_ = true, broken_ = false, closed_ = false;
  std::int64_t version_ = 0;  // synchronous: of the servers, between segments

  std::vector<std::unique_ptr<engine::Device>> host_devices_;  // of fallbacks
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<Meeting> meeting_;
  std::unique_ptr<collectives::ReplicaThreads> threads_;

  std::mutex keeper_mutex_;  // of what follows, and of conversations against `fail`
  std::condition_variable keeper_changed_;
  bool keeper_ends_ = false;
  std::optional<engine::Error> failed_;
  bool from_chief_ = false;   // what failed: this process may come back
  std::vector<Saved> saved_;  // the last ones
  std::thread keeper_;
};

}  // namespace lockstep::strategies
