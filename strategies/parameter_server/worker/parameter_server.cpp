// SPDX-License-Identifier: MIT
// Opening, checkpoints, what is said, and the servers' keeper; a step's calls stand in
// parameter_server_step.cpp.
#include "strategies/parameter_server/worker/parameter_server.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/quantity.h"
#include "engine/nn/graph_plan.h"
#include "engine/optim/update_segments.h"
#include "engine/runtime/devices.h"
#include "strategies/parameter_server/rpc/array_reader.h"
#include "strategies/parameter_server/rpc/retry.h"
#include "strategies/parameter_server/worker/server_limits.h"
#include "strategies/parameter_server/worker/worker_replica.h"

namespace lockstep::strategies {

using engine::Clock;
using engine::Code;
using engine::Error;
using engine::require;

namespace {

constexpr std::size_t kSaved = 3;                       // checkpoints that are remembered
constexpr std::chrono::milliseconds kUnopened{500};     // for servers that no job was opened on
constexpr std::chrono::milliseconds kFarewell{5000};    // for those that follow, and servers
constexpr const char* kOwnState = "parameter_server.";  // in checkpoints: versions and pushes

// Larger than that of any chief before, also where this one was started anew.
std::uint64_t generation_after(std::uint64_t last) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return std::max(last + 1, std::uint64_t(microseconds));
}

}  // namespace

ParameterServer::ParameterServer(ParameterServerOptions options) : options_(std::move(options)) {
  require(!options_.devices.empty(), "a process needs at least one replica");
  require(options_.servers >= 1, "a parameter server strategy needs at least one server");
  require(bool(options_.connect), "nobody says how servers are reached");
  if (options_.workers == 0) options_.workers = local();
  require(options_.first_worker >= 0 && options_.first_worker + local() <= options_.workers,
          "workers {} to {} are none of {}", options_.first_worker,
          options_.first_worker + local() - 1, options_.workers);
  require((options_.first_worker == 0) == !options_.chief,
          "the first worker is the chief, and the others follow it");
  const UpdateOptions& updates = options_.updates;
  require(updates.aggregate >= 0 && updates.aggregate <= options_.workers,
          "gradients of {} workers cannot be awaited of {}", updates.aggregate, options_.workers);
  require(updates.synchronous || updates.aggregate == 0,
          "gradients are awaited in synchronous training alone: aggregate {} means nothing else",
          updates.aggregate);
  require(!updates.synchronous || updates.most_staleness == 0,
          "gradients are never stale in synchronous training: most_staleness is for asynchronous "
          "training");
  dtype_ = options_.dtype.value_or(kept_dtype(*options_.devices[0]));
  require(engine::size_of(dtype_) > 2,
          "servers keep variables in float32 or float64, not in {}: train in one of these, or with "
          "another strategy",
          engine::name(dtype_));
  if (options_.first_worker > 0) {
    FollowerOptions follower;
    follower.first = options_.first_worker;
    follower.count = local();
    follower.deadline = options_.deadline;
    follower.beat = std::min(options_.patience / 5, std::chrono::milliseconds(1000));
    follower_ = std::make_unique<Follower>(options_.chief(), follower);
    follower_->when_lost([this](const Error& why) { fail(why, true); });
    return;
  }
  CoordinatorOptions coordinator;
  coordinator.workers = options_.workers;
  coordinator.local = local();
  if (updates.synchronous)
    coordinator.aggregate = updates.aggregate > 0 ? updates.aggregate : options_.workers;
  coordinator.warm_up = updates.warm_up;
  coordinator.patience = options_.patience;
  coordinator.log = options_.log;
  coordinator_ = std::make_unique<Coordinator>(coordinator);
  servers_ = std::make_unique<Servers>(connections(0), options_.container, options_.deadline);
}

ParameterServer::~ParameterServer() {
  close();
}

void ParameterServer::close() {
  if (std::exchange(closed_, true)) return;
  stop_looking();
  if (follower_) follower_->when_lost({});
  threads_.reset();
  workers_.clear();
  if (!chief()) return;
  const bool failed = generation_ == 0 || (led_ && !released_);
  try {
    if (failed) coordinator_->fail(Error(Code::kAborted, why_failed_));
    // Who makes a last step that nobody needs any more, with backup workers, is waited for.
    coordinator_->wait_for_farewells(
        Clock::now() + (failed ? std::min(options_.deadline, kFarewell) : options_.deadline));
    if (taken_) return;  // they are another's
    servers_->done(failed ? why_failed_ : "the chief is done", failed,
                   std::min(options_.deadline, generation_ == 0 ? kUnopened : kFarewell));
  } catch (const std::exception& error) {
    options_.log.warning("the others could not be told that the job is over: {}", error.what());
  }
}

rpc::Service& ParameterServer::coordinator() {
  require(coordinator_ != nullptr, "the chief alone has a coordinator");
  return *coordinator_;
}

engine::Membership ParameterServer::membership() const {
  engine::Membership membership;
  membership.rank = options_.first_worker;
  membership.local = local();
  membership.size = options_.workers;
  membership.chief = chief();
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
      options_.cluster, describe(placement_), graph.describe());
}

void ParameterServer::open(const engine::GraphSpec& graph, const engine::UpdateRule& rule,
                           const engine::OpenOptions& options) {
  stop_looking();
  threads_.reset();
  workers_.clear();
  failed_.reset();
  saved_.clear();
  version_ = 0;
  require_in_parts(rule);
  rule_ = rule;
  // A worker may be given a whole batch.
  const std::size_t rows = (options.global_batch + std::size_t(options.accumulate) - 1) /
                           std::size_t(options.accumulate);
  engine::GraphPlan whole = engine::plan_graph(graph);
  whole_ = std::move(whole.layout);
  whole_elements_ = whole.parameters;
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
  place(first);
  require(rows_->tables().empty() || options.accumulate == 1, engine::Option::kTables,
          "parameter_server: the rows of {} that a batch touches travel with it, so gradients of "
          "several micro-batches cannot be added up: leave micro-batches out, or let tables travel "
          "whole",
          rows_->tables().empty() ? "" : rows_->tables()[0].name);
  meeting_ = std::make_unique<Meeting>(local());
  broken_ = true;  // nobody converses yet
  threads_ = std::make_unique<collectives::ReplicaThreads>(
      std::vector<std::vector<int>>(std::size_t(local())));
  job_ = job_text(graph, options);
  if (follower_) {
    follower_->attach(job_);
    generation_ = std::max<std::uint64_t>(generation_, 1);
    return;
  }
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
    specs.push_back(job_spec(placement_, server, dtype_, rule, policy));
  servers_->open(specs, generation_);
  first.initialise(options.seed, workers_[0]->weights.data());
  servers_->assign(*shards_, {0, first.parameters()}, workers_[0]->weights.data(), dtype_,
                   options_.chunk_bytes);
  servers_->assign(*rows_, options.seed, dtype_, options_.chunk_bytes);
  coordinator_->open(job_, generation_);
  gathered_ = false;
  keeper_ends_ = false;
  keeper_ = std::thread([this] { look_after_servers(); });
}

// Which server holds what; of the graph's parameters, and of tables that it holds in part.
void ParameterServer::place(const engine::Graph& graph) {
  const std::size_t width = engine::size_of(dtype_);
  std::vector<VarInfo> variables;
  std::vector<engine::Parameter> held;
  for (const engine::Parameter& parameter : graph.layout()) {
    variables.push_back({parameter.name, parameter.whole, parameter.whole.elements() * width,
                         !parameter.frozen, parameter.compact});
    variables.back().decays = rule_.weight_decay == 0 || decays(rule_, parameter);
    if (!parameter.compact) held.push_back(parameter);
  }
  placement_ = place_variables(std::move(variables), options_.servers, options_.placement);
  shards_.emplace(held, placement_, width);
  rows_.emplace(graph.layout(), placement_);
  if (!options_.updates.synchronous) return;
  // All workers' gradients of a shard's rows meet, so each is one message.
  constexpr std::size_t kMostBytes = std::size_t(60) << 20;
  for (std::size_t table = 0; table < rows_->tables().size(); ++table) {
    const engine::Parameter& parameter = rows_->tables()[table];
    const std::size_t most =
        std::min(RowShards::kMostRows,
                 kMostBytes / (parameter.whole[1] * wire_width(dtype_, options_.updates.bfloat16)));
    require(parameter.frozen || rows_->most_rows(table) <= most, engine::Option::kPartition,
            "parameter_server, synchronous: a batch may touch {} rows of one shard of {}, and {} "
            "fit in one message: use smaller batches, or more shards",
            rows_->most_rows(table), parameter.name, most);
  }
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

// Conversations anew, after an error or at the beginning.
void ParameterServer::converse() {
  std::vector<std::unique_ptr<ServerWorker>> old;
  for (auto& worker : workers_) {
    const engine::Graph& graph = worker->graph;
    auto servers = std::make_unique<ServerWorker>(
        worker_terms(worker->rank),
        ServerWorker::Arena{&*shards_, rows_->tables().empty() ? nullptr : &*rows_,
                            worker->weights.data(), worker->gradients.data(), graph.trainable(),
                            graph.parameters()},
        connections(std::uint64_t(worker->rank) + 1));
    if (worker->servers) servers->go_on_from(*worker->servers);
    std::scoped_lock lock(keeper_mutex_);
    old.push_back(std::exchange(worker->servers, std::move(servers)));
  }
  old.clear();  // their calls end here, before anything else is written
  broken_ = false;
}

std::vector<engine::Shard> ParameterServer::save(engine::Replica& replica,
                                                 engine::Checkpoints& checkpoints,
                                                 std::int64_t step, std::string_view) {
  if (replica.rank != 0) return {};
  std::vector<engine::Shard> shards = servers_->save(checkpoints.folder(), step);
  std::scoped_lock lock(keeper_mutex_);
  saved_.push_back({checkpoints.folder(), step, true});
  if (saved_.size() > kSaved) saved_.erase(saved_.begin());
  return shards;
}

void ParameterServer::restore(engine::Replica& replica, engine::Checkpoints& checkpoints,
                              std::int64_t step, const std::vector<std::string>& fresh) {
  if (replica.rank != 0) return;
  std::vector<std::string> zero = fresh;
  zero.push_back(kOwnState);  // all workers begin anew
  servers_->restore(checkpoints.folder(), step, zero);
  version_ = step;
  std::scoped_lock lock(keeper_mutex_);
  saved_.assign(1, {checkpoints.folder(), step, false});
}

std::string ParameterServer::explain() const {
  const std::vector<std::size_t>& bytes = placement_.server_bytes;
  const std::size_t largest = bytes.empty() ? 0 : *std::ranges::max_element(bytes);
  std::string text = "parameter_server: ";
  text += engine::count_text(std::uint64_t(options_.workers), "worker") + ", ";
  text += engine::count_text(std::uint64_t(options_.servers), "server");
  if (largest > 0)
    text += fmt::format("; {} keeps {} of variables and optimizer state",
                        options_.servers == 1 ? "it" : "the largest",
                        engine::bytes_text(double(largest)));
  return text + "\nupdates: " + reason() + of_bodies() + of_tables();
}

std::string ParameterServer::of_bodies() const {
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

// What is not the same as with whole tables: a rule that has slots moves those of touched rows.
std::string ParameterServer::of_tables() const {
  if (!rows_ || rows_->tables().empty()) return "";
  std::vector<std::string> names;
  for (const engine::Parameter& table : rows_->tables()) names.push_back(table.name);
  const bool lazy = rule_.slots() > 0 || rule_.weight_decay != 0;
  return fmt::format(
      "\ntables: only the rows of {} that a batch touches travel{}", fmt::join(names, " and "),
      lazy ? "; the optimizer updates only these rows (momentum, moments and decay of "
             "other rows wait until they are touched)"
           : "");
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
  return placement_table(placement_);
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
  const ArenaShards shards(whole_, placement_, engine::size_of(dtype_));
  const engine::Range all{0, whole_elements_};
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

// All that this process's replicas wait for ends with this error.
void ParameterServer::fail(const Error& why, bool from_chief) {
  std::scoped_lock lock(keeper_mutex_);
  if (!failed_ || from_chief_) {
    failed_ = why;
    from_chief_ = from_chief;
  }
  for (const auto& worker : workers_)
    if (worker->servers) worker->servers->fail(why);
  if (servers_) servers_->fail(why);
}

void ParameterServer::abort(const Error& error) noexcept {
  try {
    fail(error);
    if (coordinator_) coordinator_->fail(error);
  } catch (const std::exception&) {
    // no memory for a text: the deadlines end the waiting
  }
}

void ParameterServer::stop_looking() {
  {
    std::scoped_lock lock(keeper_mutex_);
    keeper_ends_ = true;
  }
  keeper_changed_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

void ParameterServer::look_after_servers() {
  std::unique_lock lock(keeper_mutex_);
  while (!keeper_changed_.wait_for(lock, options_.look, [&] { return keeper_ends_; })) {
    for (std::size_t server = 0; server < options_.servers && !keeper_ends_ && !failed_; ++server) {
      lock.unlock();
      try {
        if (!servers_->probe(server, options_.look)) recover(server);
      } catch (const Error& error) {
        if (error.code() == Code::kInvalid) {
          taken_ = true;
          const Error why(Code::kPeerLost,
                          fmt::format("another chief has opened container \"{}\" on server {}: {}",
                                      options_.container, server, error.what()));
          fail(why);
          coordinator_->fail_segment(why);
        }
        // Who is away may come again; calls that need it have deadlines of their own.
        options_.log.debug("server {}: {}", server, error.what());
      }
      lock.lock();
    }
  }
}

void ParameterServer::recover(std::size_t server) {
  const std::string who = fmt::format("server {} ({})", server, servers_->address(server));
  std::vector<Saved> saved;
  {
    std::scoped_lock lock(keeper_mutex_);
    saved = saved_;
  }
  const auto lost = [&](Code code, const std::string& rest) {
    const Error why(code, fmt::format("{} came back without its variables: {}", who, rest));
    fail(why);
    coordinator_->fail_segment(why);
  };
  if (options_.updates.synchronous)
    return lost(Code::kUnavailable, "synchronous training goes on from a checkpoint as a whole");
  std::string wrong = "there is no checkpoint yet";
  for (auto at = saved.rbegin(); at != saved.rend(); ++at) {
    try {
      std::vector<std::string> zero;
      if (!at->own) zero.emplace_back(kOwnState);
      servers_->restore(server, at->folder, at->step, zero);
      options_.log.warning(
          "{} came back, and was given the checkpoint of step {}; what was pushed there since is "
          "lost",
          who, at->step);
      return;
    } catch (const Error& error) {
      if (error.code() == Code::kUnavailable || error.code() == Code::kTimeout) throw;
      if (error.code() == Code::kIo) return lost(Code::kIo, error.what());
      wrong = error.what();
    }
  }
  lost(Code::kPeerLost, wrong);
}

}  // namespace lockstep::strategies
