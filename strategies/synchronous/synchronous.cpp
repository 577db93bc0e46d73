// SPDX-License-Identifier: MIT
// Opening. synchronous_memory.cpp plans and allocates memory, synchronous_run.cpp runs the
// replicas, synchronous_step.cpp has the calls of a step, and synchronous_state.cpp the texts for
// users.
#include "strategies/synchronous/synchronous.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "collectives/algorithms/registry.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/cost/planner.h"
#include "collectives/job/agreement.h"
#include "collectives/job/host_connections.h"
#include "collectives/job/rank_processors.h"
#include "collectives/plan/traffic.h"
#include "collectives/topology/machine.h"
#include "engine/base/hash.h"
#include "strategies/synchronous/rank_costs.h"
#include "strategies/synchronous/replica_devices.h"

namespace lockstep::strategies {

using engine::require;

namespace {

constexpr std::chrono::milliseconds kDeadline{60000};  // and at least 20 median steps

// Returns the options that must be the same in all processes, one per line.
std::string flags_text(const SynchronousOptions& o, const engine::UpdateRule& rule,
                       const engine::OpenOptions& opening, engine::DType dtype, bool queued) {
  const std::string shares =
      o.shares.empty() ? "equal" : fmt::format("{}", fmt::join(o.shares, " "));
  return fmt::format(
      "optimizer: kind {} momentum {} nesterov {} betas {} {} epsilon {} decay {} of {} clip {} "
      "trust {}\n"
      "batch: {}\nshares: {}\naccumulate: {}\nseed: {}\ndtype: {}\nchecksums: {}\noverlap: {}\n"
      "transport: {}\nwire: {}\nloss scale: {}\nmemory of replicas: {}\n",
      int(rule.kind), rule.momentum, rule.nesterov, rule.beta1, rule.beta2, rule.epsilon,
      rule.weight_decay, rule.decay_all ? "all parameters" : "weights", rule.clip_norm, rule.trust,
      opening.global_batch, shares, opening.accumulate, opening.seed, engine::name(dtype),
      o.checksums, o.step.overlap, collectives::transport_of(o.network),
      o.step.wire ? engine::name(*o.step.wire) : "", text_of(rule.scaling),
      queued ? "their devices'" : "the host's");
}

// Returns the bytes that the local rank that sends most sends to other hosts in a step.
std::size_t sent_in_step(const StepDesign& design, const collectives::JobRanks& ranks) {
  std::vector<std::size_t> sent(ranks.host.size(), 0);
  for (std::size_t i = 0; i < design.plan.size(); ++i) {
    if (int(i) == design.stages.start) continue;  // once, before the first step
    const auto traffic = collectives::traffic(design.plan[i].plan);
    for (const int rank : ranks.local())
      sent[std::size_t(rank)] += traffic[std::size_t(rank)].bytes;
  }
  return *std::max_element(sent.begin(), sent.end());
}

}  // namespace

Synchronous::Synchronous(SynchronousOptions options, collectives::Bootstrap& bootstrap)
    : options_(std::move(options)) {
  require(!options_.devices.empty(), "a strategy needs at least one device");
  require(options_.threads >= 1, "threads must be at least 1, not {}", options_.threads);
  require(deadline().count() > 0, "the deadline must be positive");
  std::vector<std::string> devices;
  for (engine::Device* device : options_.devices) devices.push_back(to_string(device->id()));
  topology_ = collectives::discover(bootstrap, devices);
  collectives::assume_gpu_costs(topology_, options_.gpus);
  const std::size_t ranks = topology_.ranks.size();
  require(options_.shares.empty() || options_.shares.size() == ranks,
          "{} shares of the batch were given for {} replicas", options_.shares.size(), ranks);
  std::vector<int> pids;
  for (const auto& process : topology_.processes) pids.push_back(process.pid);
  job_.emplace(collectives::ranks_of(bootstrap, topology_), pids,
               collectives::JobOptions{.deadline = deadline(),
                                       .network = options_.network,
                                       .activity = " while the job was starting"});
  gpu_path_.emplace(*job_, options_);
  find_processors();
}

// Finds the processors of this process's replicas. The processes of a machine have different sets,
// whether their ranks share memory or not.
void Synchronous::find_processors() {
  const collectives::JobRanks ranks = collectives::by_machine(job_->ranks());
  binding_ = collectives::processors_of_ranks(ranks, "processors of each process", options_.threads)
                 .binding;
  if (ranks.mine().front() == ranks.local().front() && !binding_.warning.empty()) {
    const std::string why = collectives::why_confined(collectives::confinement());
    options_.log.warning("{}{}{}", binding_.warning, why.empty() ? "" : "; ", why);
  }
  if (!options_.bind) binding_.processors.assign(options_.devices.size(), {});
}

Synchronous::~Synchronous() {
  job_->release();
}

std::chrono::milliseconds Synchronous::deadline() const {
  return options_.deadline.value_or(kDeadline);
}

int Synchronous::first_rank() const {
  return job_->rank();
}

engine::Membership Synchronous::membership() const {
  engine::Membership membership;
  membership.rank = first_rank();
  membership.local = int(options_.devices.size());
  membership.size = job_->size();
  membership.chief = membership.rank == 0;
  membership.host = job_->bootstrap().hosts()[std::size_t(job_->bootstrap().process())];
  membership.generation = generation_;
  return membership;
}

std::size_t Synchronous::largest_share(std::size_t batch, int accumulate) const {
  std::size_t largest = 1;
  for (int rank = 0; rank < job_->size(); ++rank) {
    const engine::Range mine = engine::share_of({0, batch}, rank, job_->size(), options_.shares);
    largest = std::max(largest, mine.size());
  }
  return (largest + std::size_t(accumulate) - 1) / std::size_t(accumulate);
}

void Synchronous::open(const engine::GraphSpec& graph, const engine::UpdateRule& rule,
                       const engine::OpenOptions& options) {
  require(options.global_batch >= 1, "the batch must hold at least one example");
  require(options.accumulate >= 1, "accumulate must be at least 1");
  running_.reset();
  job_->expect_deaths(false);  // a death ends the exchanges
  vendor_sums_.reset();
  graph_recorder_.reset();
  mirrors_.clear();
  shared_.team.reset(), shared_.gpu_spaces.reset(), shared_.memory.reset();
  ++generation_;
  open_ = {graph, rule, options};

  // Planning uses a graph of one row, which needs little memory. Memory is allocated only after the
  // comparison, so that all processes of the host have seen the same free memory.
  const auto ops_of = [&](engine::Device& device, engine::Kernels kernels) {
    return device.ops(options_.step.dtype.value_or(device.default_dtype()),
                      {options_.threads, kernels});
  };
  engine::Device& first_device = *options_.devices[0];
  const auto ops = ops_of(first_device, options_.step.kernels.value_or(engine::Kernels::kAuto));
  queued_ = !ops->in_host_memory();
  const auto check = [&] {
    require_possible_devices(options_, *ops);
    const std::string why = options_.step.graphs == Graphs::kOn ? why_no_graphs() : "";
    require(why.empty(), "graphs: on was asked for, and cannot be, since {}; leave it to auto",
            why);
  };
  job_->bootstrap().processes() == 1 ? check()
                                     : collectives::run_collectively(*job_, check, "devices");
  fallback_.planning_ops = host_ops(ops->dtype());
  const auto scaled_before = recorded_scaling(open_.options.plan, ops->dtype());
  open_.rule.scaling = scaling_of(options_.step.loss_scale, scaled_before, ops->dtype());
  if (membership().chief && scaled_before && *scaled_before != open_.rule.scaling)
    options_.log.warning(
        "loss scale {} was asked for, the checkpoint was written with {}: bits may differ",
        text_of(open_.rule.scaling), text_of(*scaled_before));
  const engine::Graph first(graph, *ops, 1, graph_options());
  const std::string flags = flags_text(options_, open_.rule, options, first.dtype(), queued_);
  // One differing line suffices for models: the other differences follow from it. Whether all
  // processes look for costs is compared before any of them does.
  collectives::require_same(*job_, graph.describe(), "model", true);
  if (job_->bootstrap().processes() > 1)
    collectives::require_same(
        *job_,
        fmt::format("{}algorithm: {}\nupdate: {}\nbuckets: {} bytes\ncosts: {}\n"
                    "plan of the checkpoint: {:016x}\n{}",
                    flags, options_.step.algorithm.text(), strategies::name(options_.step.update),
                    options_.step.bucket_bytes, options_.measured ? "measured" : "assumed",
                    engine::hash(options.plan), options.run),
        "options");
  gpu_path_->find(topology_, queued_, open_.options.plan);
  design(first);
  plan_memory(*ops_of(first_device, design_.kernels), first);
  collectives::require_same(
      *job_,
      fmt::format("{}kernels: {}\nplan: {:016x}\n{}", flags, engine::name(design_.kernels),
                  collectives::hash(design_.plan), options.run),
      "options and plan");

  const std::size_t rows = largest_share(options.global_batch, options.accumulate);
  for (std::size_t i = 0; i < options_.devices.size(); ++i) {
    engine::Device& device = *options_.devices[i];
    mirrors_.push_back(
        std::make_unique<Mirror>(first_rank() + int(i), graph,
                                 OwnOps{ops_of(device, design_.kernels), host_ops(ops->dtype())},
                                 rows, options.seed, graph_options()));
    require(
        mirrors_.back()->kernels().in_host_memory() == ops->in_host_memory(),
        "replicas on devices with and without memory of their own cannot read each other's: give "
        "devices of one kind");
  }
  map_memory();
  open_executors();
  open_graph_recorder();
  if (!threads_) threads_ = std::make_unique<collectives::ReplicaThreads>(binding_.processors);
  running_.emplace(*job_, "", "");
  set_start_values();
}

void Synchronous::design(const engine::Graph& graph) {
  DesignOptions design_options{.step = options_.step};
  design_options.step.dtype = graph.dtype();
  design_options.rule = open_.rule;
  plan_source_.recorded =
      obey_record(open_.options.plan, job_->ranks().host, design_options,
                  membership().chief ? options_.log : engine::Log("", engine::Log::Level::kError));
  plan_source_.other_arithmetic =
      membership().chief &&
      other_arithmetic(open_.options.plan, job_->ranks().host, arithmetic(), options_.log);
  for (engine::Device* device : options_.devices) {
    const std::string choices = recorded_choices(open_.options.plan, device->instructions());
    if (!choices.empty()) device->adopt_choices(choices);
  }
  DesignInput input;
  input.graph = &graph;
  input.rule = open_.rule;
  input.host = job_->ranks().host;
  input.totals = kTotals;
  input.metrics_per_rank = kNumbersOfRank;
  input.gather_per_rank = kGather;
  input.unlike = unlike_processors(topology_);
  input.queued = queued_;
  input.vendor = gpu_path_->vendor();
  input.no_vendor = gpu_path_->no_vendor();
  std::optional<StepPrices> prices;
  const StepQuestion question = strategies::question(input, design_options);
  plan_source_.chosen = !question.sums.empty();
  if (plan_source_.chosen) {
    if (plan_source_.costs_are.empty())
      plan_source_.costs_are = find_costs(*job_, topology_, options_, queued_);
    prices = price_step(topology_, open_.rule, question, &job_->bootstrap());
    input.prices = &*prices;
  }
  design_ = design_step(input, design_options);
}

Arithmetic Synchronous::arithmetic() const {
  std::vector<std::string> all;
  std::map<std::string, std::string> choices;
  for (const engine::Device* device : options_.devices) {
    all.push_back(device->instructions());
    if (std::string made = device->choices(); !made.empty()) choices.emplace(all.back(), made);
  }
  if (std::ranges::count(all, all[0]) == std::ptrdiff_t(all.size())) all.resize(1);
  return {options_.threads, fmt::format("{}", fmt::join(all, " and ")), choices};
}

// Creates the connections between hosts and an executor for each replica.
void Synchronous::open_executors() {
  auto transports = collectives::connect_hosts(job_->ranks(), design_.plan, job_->network(),
                                               job_->deadline(), "");
  job_->set_access(collectives::memory_access(
      topology_.hosts[std::size_t(job_->ranks().host[std::size_t(first_rank())])].costs));
  collectives::ExecutorOptions executor = job_->executor_options();
  executor.hook = options_.hook;
  // On a device with a queue, kernels take about the same time for many blocks as for few.
  if (!mirrors_[0]->kernels().in_host_memory()) executor.blocks_at_once = 1 << 20;
  open_vendor();
  if (vendor_sums_) executor.vendor_sum = std::bind_front(&VendorSums::sum, vendor_sums_.get());
  for (std::size_t i = 0; i < mirrors_.size(); ++i) {
    if (options_.checksums && job_->size() > 1)
      mirrors_[i]->checks.emplace(mirrors_[i]->kernels(), mirrors_[i]->graph,
                                  open_.options.global_batch / std::size_t(job_->size()));
    mirrors_[i]->open(design_, open_.rule, *shared_.team, std::move(transports[i]), executor);
  }
  watch_vendor();
  const std::vector<int> machine = job_->bootstrap().hosts();  // not the hosts of the plan
  const auto beside = std::ranges::count_if(topology_.ranks, [&](const auto& rank) {
    return machine[std::size_t(rank.process)] == machine[std::size_t(job_->bootstrap().process())];
  });
  communication_threads_ =
      communication_threads({.cores = std::size_t(collectives::machine().cores),
                             .replicas = std::size_t(beside),
                             .threads = std::size_t(options_.threads),
                             .sent = sent_in_step(design_, job_->ranks()),
                             .wakes = collectives::transport_of(options_.network) == "tcp",
                             .asked = options_.communication_thread});
}

}  // namespace lockstep::strategies
