// SPDX-License-Identifier: MIT
// Opening, checkpoints, explanations. The calls of a step are in parameter_server_step.cpp.
#include "strategies/parameter_server/worker/parameter_server.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "engine/base/quantity.h"
#include "engine/nn/graph_plan.h"
#include "engine/runtime/devices.h"
#include "strategies/parameter_server/rpc/retry.h"
#include "strategies/parameter_server/worker/chief.h"
#include "strategies/parameter_server/worker/server_limits.h"
#include "strategies/parameter_server/worker/worker_replica.h"

namespace lockstep::strategies {

using engine::Clock;
using engine::Code;
using engine::Error;
using engine::require;

namespace {

constexpr std::chrono::milliseconds kUnopened{500};   // for servers without an open job
constexpr std::chrono::milliseconds kShutdown{5000};  // for following processes, and servers

// Returns a generation larger than that of any earlier chief, even if this one was restarted.
std::uint64_t generation_after(std::uint64_t last) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return std::max(last + 1, std::uint64_t(microseconds));
}

void require_possible(const ParameterServerOptions& options) {
  const int local = int(options.devices.size());
  require(local >= 1, "a process needs at least one replica");
  require(options.servers >= 1, "a parameter server strategy needs at least one server");
  require(bool(options.connect), "nobody says how servers are reached");
  require(options.first_worker >= 0 && options.first_worker + local <= options.workers,
          "workers {} to {} are none of {}", options.first_worker, options.first_worker + local - 1,
          options.workers);
  require((options.first_worker == 0) == !options.chief,
          "the first worker is the chief, and the others follow it");
  const UpdateOptions& updates = options.updates;
  require(updates.aggregate >= 0 && updates.aggregate <= options.workers,
          "gradients of {} workers cannot be awaited of {}", updates.aggregate, options.workers);
  require(updates.synchronous || updates.aggregate == 0,
          "gradients are awaited in synchronous training alone: aggregate {} means nothing else",
          updates.aggregate);
  require(!updates.synchronous || updates.most_staleness == 0,
          "gradients are never stale in synchronous training: most_staleness is for asynchronous "
          "training");
}

SchedulerOptions scheduler_options(const ParameterServerOptions& options) {
  const UpdateOptions& updates = options.updates;
  SchedulerOptions scheduler;
  scheduler.workers = options.workers;
  scheduler.local = int(options.devices.size());
  if (updates.synchronous)
    scheduler.aggregate = updates.aggregate > 0 ? updates.aggregate : options.workers;
  scheduler.warm_up = updates.warm_up;
  scheduler.heartbeat_timeout = options.heartbeat_timeout;
  scheduler.log = options.log;
  return scheduler;
}

}  // namespace

ParameterServer::ParameterServer(ParameterServerOptions options) : options_(std::move(options)) {
  if (options_.workers == 0) options_.workers = local();
  require_possible(options_);
  dtype_ = options_.dtype.value_or(kept_dtype(*options_.devices[0]));
  require(engine::size_of(dtype_) > 2,
          "servers keep variables in float32 or float64, not in {}: train in one of these, or with "
          "another strategy",
          engine::name(dtype_));
  if (options_.first_worker > 0) {
    SchedulerClientOptions client;
    client.first = options_.first_worker;
    client.count = local();
    client.deadline = options_.deadline;
    client.heartbeat_interval =
        std::min(options_.heartbeat_timeout / 5, std::chrono::milliseconds(1000));
    client_ = std::make_unique<SchedulerClient>(options_.chief(), client);
    client_->when_lost([this](const Error& why) { fail(why, true); });
    return;
  }
  chief_ = std::make_unique<Chief>(scheduler_options(options_), connections(0), options_,
                                   [this](const Error& why) {
                                     fail(why);
                                     chief_->scheduler.fail_segment(why);
                                   });
}

ParameterServer::~ParameterServer() {
  close();
}

void ParameterServer::close() {
  if (std::exchange(closed_, true)) return;
  if (chief_) chief_->watch.stop();
  if (client_) client_->when_lost({});
  threads_.reset();
  workers_.clear();
  if (!chief_) return;
  const bool failed = generation_ == 0 || chief_->leading;
  try {
    if (failed) chief_->scheduler.fail(Error(Code::kAborted, chief_->why_failed));
    // With backup workers, one may still run a last step that is not needed.
    chief_->scheduler.wait_for_shutdown(
        Clock::now() + (failed ? std::min(options_.deadline, kShutdown) : options_.deadline));
    if (chief_->watch.taken()) return;  // another chief's job continues
    chief_->servers.done(failed ? chief_->why_failed : "the chief is done", failed,
                         std::min(options_.deadline, generation_ == 0 ? kUnopened : kShutdown));
  } catch (const std::exception& error) {
    options_.log.warning("the others could not be told that the job is over: {}", error.what());
  }
}

rpc::Service& ParameterServer::scheduler() {
  require(chief_ != nullptr, "the chief alone has a scheduler");
  return chief_->scheduler;
}

int ParameterServer::lost() const {
  return chief_ ? chief_->scheduler.lost() : 0;
}

engine::Membership ParameterServer::membership() const {
  engine::Membership membership;
  membership.rank = options_.first_worker;
  membership.local = local();
  membership.size = options_.workers;
  membership.chief = chief_ != nullptr;
  membership.generation = generation_;
  return membership;
}

std::vector<std::unique_ptr<rpc::Connection>> ParameterServer::connections(
    std::uint64_t seed) const {
  std::vector<std::unique_ptr<rpc::Connection>> result;
  for (std::size_t server = 0; server < options_.servers; ++server) {
    result.push_back(std::make_unique<rpc::Retry>(options_.connect(server),
                                                  rpc::RetryOptions{.seed = seed * 1000 + server}));
  }
  return result;
}

std::string ParameterServer::job_text(const engine::GraphSpec& graph,
                                      const engine::OpenOptions& options) const {
  return fmt::format(
      "{}\nbatch: {}\ndtype: {}\nworkers: {}\nsynchronous: {}\naggregate: {}\nbfloat16 on the "
      "wire: {}\n\n{}\n\n{}\n{}",
      options.run, options.global_batch, engine::name(dtype_), options_.workers,
      options_.updates.synchronous, options_.updates.aggregate, options_.updates.bfloat16,
      options_.cluster, describe(layout_->placement), graph.describe());
}

void ParameterServer::open(const engine::GraphSpec& graph, const engine::UpdateRule& rule,
                           const engine::OpenOptions& options) {
  if (chief_) chief_->watch.stop();
  threads_.reset();
  workers_.clear();
  failed_.reset();
  if (chief_) chief_->watch.resume();
  version_ = 0;
  require_in_parts(rule);
  // A worker may get a global batch.
  const std::size_t rows = (options.global_batch + std::size_t(options.accumulate) - 1) /
                           std::size_t(options.accumulate);
  engine::GraphPlan whole = engine::plan_graph(graph);
  const engine::GraphOptions in_graph{.compact_rows = options_.updates.touched_rows,
                                      .device = to_string(options_.devices[0]->id())};
  try {
    const engine::GraphPlan plan =
        engine::plan_graph(graph, options_.updates.touched_rows ? rows : 0);
    require(
        plan.sources.empty() || options_.devices[0]->id().kind != "cuda",
        "parameter_server: the host finds the rows of tables that a batch touches, and {} keeps "
        "batches to itself",
        in_graph.device);
  } catch (const Error& error) {
    throw error.with(fmt::format("{}, or let tables travel whole", error.what()))
        .about(engine::Option::kTables);
  }
  for (int i = 0; i < local(); ++i) {
    engine::OpsOptions ops;
    ops.threads = options_.threads;
    if (options_.kernels) ops.kernels = *options_.kernels;
    WorkerOps own{options_.devices[std::size_t(i)]->ops(dtype_, ops)};
    if (options.fallback == engine::Fallback::kCpu && !own.own_ops->in_host_memory()) {
      if (host_devices_.empty()) host_devices_ = engine::host_devices();
      own.host_ops = host_devices_[0]->ops(dtype_, {.threads = options_.threads});
    }
    workers_.push_back(std::make_unique<Worker>(options_.first_worker + i, graph, std::move(own),
                                                rows, in_graph, options.seed));
  }
  const engine::Graph& first = workers_[0]->graph;
  require_alone(first);
  layout_.emplace(lay_out(first, std::move(whole), rule, options_.servers, options_.placement,
                          options_.updates));
  const std::vector<engine::Parameter>& tables = layout_->rows.tables();
  require(tables.empty() || options.accumulate == 1, engine::Option::kTables,
          "parameter_server: the rows of {} that a batch touches travel with it, so gradients of "
          "several micro-batches cannot be added up: leave micro-batches out, or let tables travel "
          "whole",
          tables.empty() ? "" : tables[0].name);
  broken_ = true;  // no worker is connected yet
  threads_ = std::make_unique<collectives::ReplicaThreads>(
      std::vector<std::vector<int>>(std::size_t(local())));
  job_ = job_text(graph, options);
  if (client_) {
    client_->attach(job_);
    generation_ = std::max<std::uint64_t>(generation_, 1);
    return;
  }
  open_servers(first, options.seed);
}

void ParameterServer::open_servers(const engine::Graph& graph, std::uint64_t seed) {
  generation_ = generation_after(generation_);
  UpdatePolicy policy;
  const UpdateOptions& updates = options_.updates;
  policy.synchronous = updates.synchronous;
  policy.workers = std::uint32_t(options_.workers);
  policy.aggregate = std::uint32_t(updates.aggregate);
  policy.scale_rate = updates.scale_rate;
  policy.most_staleness = updates.most_staleness;
  std::vector<JobSpec> specs;
  for (std::size_t server = 0; server < options_.servers; ++server)
    specs.push_back(job_spec(layout_->placement, server, dtype_, layout_->rule, policy));
  Servers& servers = chief_->servers;
  servers.open(specs, generation_);
  graph.initialise(seed, workers_[0]->weights.data());
  servers.assign(layout_->shards, {0, graph.parameters()}, workers_[0]->weights.data(), dtype_,
                 options_.chunk_bytes);
  servers.assign(layout_->rows, seed, dtype_, options_.chunk_bytes);
  chief_->scheduler.open(job_, generation_);
  chief_->waited = false;
  chief_->watch.start();
}

ServerWorkerTerms ParameterServer::worker_terms(int worker) const {
  ServerWorkerTerms terms;
  terms.container = options_.container;
  terms.worker = std::uint32_t(worker);
  terms.dtype = dtype_;
  terms.bfloat16 = options_.updates.bfloat16;
  terms.synchronous = options_.updates.synchronous;
  terms.chunk_bytes = options_.chunk_bytes;
  terms.deadline = options_.deadline;
  return terms;
}

// Connects all workers to the servers, at the beginning and again after an error.
void ParameterServer::connect_workers() {
  std::vector<std::unique_ptr<ServerWorker>> old;
  for (auto& worker : workers_) {
    const engine::Graph& graph = worker->graph;
    auto servers = std::make_unique<ServerWorker>(
        worker_terms(worker->rank),
        ServerWorker::Arena{&layout_->shards,
                            layout_->rows.tables().empty() ? nullptr : &layout_->rows,
                            worker->weights.data(), worker->gradients.data(), graph.trainable(),
                            graph.parameters()},
        connections(std::uint64_t(worker->rank) + 1));
    if (worker->servers) servers->go_on_from(*worker->servers);
    std::scoped_lock lock(mutex_);
    old.push_back(std::exchange(worker->servers, std::move(servers)));
  }
  exchange_ = collectives::in_memory_bootstrap(std::vector<int>(std::size_t(local()), 0),
                                               options_.deadline);
  // The old calls end here, before anything else is written.
  old.clear();
  broken_ = false;
}

std::vector<engine::Shard> ParameterServer::save(engine::Replica& replica,
                                                 engine::Checkpoints& checkpoints,
                                                 std::int64_t step, std::string_view) {
  if (replica.rank != 0) return {};
  std::vector<engine::Shard> shards = chief_->servers.save(checkpoints.folder(), step);
  chief_->watch.saved(checkpoints.folder(), step);
  return shards;
}

void ParameterServer::restore(engine::Replica& replica, engine::Checkpoints& checkpoints,
                              std::int64_t step, const std::vector<std::string>& fresh) {
  if (replica.rank != 0) return;
  std::vector<std::string> zero = fresh;
  zero.emplace_back(Servers::kOwnState);  // all workers restart their numbers
  chief_->servers.restore(checkpoints.folder(), step, zero);
  version_ = step;
  chief_->watch.restored(checkpoints.folder(), step);
}

std::string ParameterServer::explain() const {
  const std::size_t largest =
      layout_ ? *std::ranges::max_element(layout_->placement.server_bytes) : 0;
  std::string text = "parameter_server: ";
  text += engine::count_text(std::uint64_t(options_.workers), "worker") + ", ";
  text += engine::count_text(std::uint64_t(options_.servers), "server");
  if (largest > 0)
    text += fmt::format("; {} keeps {} of variables and optimizer state",
                        options_.servers == 1 ? "it" : "the largest",
                        engine::bytes_text(double(largest)));
  return text + "\nupdates: " + reason() + explain_messages() +
         (layout_ ? explain_tables(*layout_) : "");
}

std::string ParameterServer::explain_messages() const {
  if (options_.near == 0) return "";
  constexpr std::string_view kThere = "weights and gradients travel through shared memory";
  if (options_.near < options_.servers)
    return fmt::format(
        "\nmessages: {} to {} of {} servers, which are on this host, and through sockets to the "
        "others",
        kThere, options_.near, options_.servers);
  const std::string all =
      options_.servers == 1 ? "the server is" : fmt::format("all {} servers are", options_.servers);
  return fmt::format("\nmessages: {} on this host, so {}", all, kThere);
}

std::string ParameterServer::reason() const {
  if (!options_.updates.synchronous)
    return "asynchronous, each worker takes the next batch when it is ready";
  if (options_.updates.aggregate == 0 || options_.updates.aggregate == options_.workers)
    return "synchronous, each update waits for all workers";
  return fmt::format("synchronous, the first {} of {} gradients make an update",
                     options_.updates.aggregate, options_.workers);
}

std::string ParameterServer::placement() const {
  return placement_table(layout_ ? layout_->placement : VariablePlacement());
}

ServerWorker::Counts ParameterServer::counts() const {
  ServerWorker::Counts sum;
  for (const auto& worker : workers_) {
    if (!worker->servers) continue;
    const ServerWorker::Counts counts = worker->servers->counts();
    sum.pushes += counts.pushes;
    sum.late += counts.late;
    sum.too_stale += counts.too_stale;
    sum.traffic += counts.traffic;
    sum.staleness_sum += counts.staleness_sum;
    sum.staleness_most = std::max(sum.staleness_most, counts.staleness_most);
  }
  return sum;
}

std::vector<double> ParameterServer::weights() {
  const ArenaShards shards(layout_->whole, layout_->placement, engine::size_of(dtype_));
  const engine::Range all{0, layout_->whole_elements};
  engine::Buffer memory(std::max<std::size_t>(1, all.end) * engine::size_of(dtype_));
  ServerWorkerTerms terms = worker_terms(0);
  terms.bfloat16 = false;
  ServerWorker reader(terms, {&shards, nullptr, memory.data(), nullptr, 0, all.end},
                      connections(0));
  reader.begin(generation_, 0);
  reader.pull(all, 0);
  reader.wait(all);
  std::vector<double> values(all.end);
  const std::byte* data = memory.data();
  for (std::size_t i = 0; i < all.end; ++i) {
    values[i] = dtype_ == engine::DType::kFloat64 ? reinterpret_cast<const double*>(data)[i]
                                                  : double(reinterpret_cast<const float*>(data)[i]);
  }
  return values;
}

// Ends all waits of this process's replicas with this error.
void ParameterServer::fail(const Error& why, bool from_chief) {
  if (chief_) chief_->watch.suspend();
  std::scoped_lock lock(mutex_);
  if (!failed_ || from_chief_) {
    failed_ = why;
    from_chief_ = from_chief;
  }
  for (const auto& worker : workers_)
    if (worker->servers) worker->servers->fail(why);
  if (chief_) chief_->servers.fail(why);
}

void ParameterServer::abort(const Error& error) noexcept {
  try {
    fail(error);
    if (chief_) chief_->scheduler.fail(error);
  } catch (const std::exception&) {
    // out of memory: deadlines end the waits
  }
}

}  // namespace lockstep::strategies
