// SPDX-License-Identifier: MIT
// Opening. Memory is planned and taken in synchronous_memory.cpp; replicas run in
// synchronous_run.cpp, the calls of a step stand in synchronous_step.cpp, checkpoints' pieces and
// words for people in synchronous_state.cpp.
#include "strategies/synchronous/synchronous.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include "collectives/algorithms/registry.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/cost/planner.h"
#include "collectives/job/host_connections.h"
#include "collectives/plan/traffic.h"
#include "collectives/topology/machine.h"
#include "collectives/topology/processor_map.h"
#include "engine/base/error_bytes.h"
#include "engine/base/hash.h"

namespace lockstep::strategies {

using engine::Code;
using engine::Error;
using engine::require;

namespace {

constexpr std::chrono::milliseconds kDeadline{60000};  // and at least 20 median steps
constexpr int kMostDifferences = 3;                    // lines that are shown
// For a calibration to end by itself once somebody died: it knows more to say.
constexpr std::chrono::seconds kTurn{2};

// What all processes must have been told alike, a line each.
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
      opening.batch, shares, opening.accumulate, opening.seed, engine::name(dtype), o.checksums,
      o.step.overlap, collectives::transport_of(o.network),
      o.step.wire ? engine::name(*o.step.wire) : "", text_of(rule.scaling),
      queued ? "their devices'" : "the host's");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

Synchronous::Synchronous(SynchronousOptions options, collectives::Bootstrap& bootstrap)
    : options_(std::move(options)), bootstrap_(bootstrap) {
  require(!options_.devices.empty(), "a strategy needs at least one device");
  require(options_.threads >= 1, "threads must be at least 1, not {}", options_.threads);
  require(deadline().count() > 0, "the deadline must be positive");
  std::vector<std::string> devices;
  for (engine::Device* device : options_.devices) devices.push_back(to_string(device->id()));
  topology_ = collectives::discover(bootstrap_, devices);
  collectives::assume_gpu_costs(topology_, options_.gpus);
  host_ = topology_.host_of_rank();
  require(options_.shares.empty() || options_.shares.size() == host_.size(),
          "{} shares of the batch were given for {} replicas", options_.shares.size(),
          host_.size());
  watch_ = std::make_unique<collectives::PeerWatch>([this](const collectives::PeerProcess& peer) {
    // What measures costs notices the death, too, and knows more.
    const auto until = engine::Clock::now() + kTurn;
    while (calibrating_ && engine::Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::scoped_lock lock(watch_mutex_);
    if (team_) return abort(collectives::death(peer));
    if (!meeting_) return;
    lost_ = collectives::death(peer, {}, " while the job was starting");
    bootstrap_.abandon(*lost_);
  });
  std::vector<int> pids;
  for (const auto& process : topology_.processes) pids.push_back(process.pid);
  const std::vector<int> machine = bootstrap_.hosts();  // which also processes with GPUs share
  collectives::JobRanks neighbours = collectives::ranks_of(bootstrap_, topology_);
  for (std::size_t rank = 0; rank < host_.size(); ++rank)
    neighbours.host[rank] = machine[std::size_t(neighbours.process[rank])];
  collectives::watch_host(neighbours, pids, *watch_);
  find_processors();
}

// Where the replicas of this process run. Processes of a host are told apart by what they may use.
void Synchronous::find_processors() {
  const std::vector<std::string> all = bootstrap_.all_gather(
      collectives::to_text(collectives::allowed_processors()), "processors of each process");
  const std::vector<int> host = bootstrap_.hosts();
  const int here = host[std::size_t(bootstrap_.process())];
  std::vector<collectives::HostProcess> processes;
  std::size_t mine = 0;
  for (int process = 0; process < int(all.size()); ++process) {
    if (host[std::size_t(process)] != here) continue;
    const std::vector<int> ranks = topology_.ranks_of_process(process);
    if (process == bootstrap_.process()) mine = processes.size();
    processes.push_back({collectives::processors_of(all[std::size_t(process)]), int(ranks.size())});
  }
  binding_ = collectives::plan_binding(processes, mine, collectives::processor_map(),
                                       options_.threads, collectives::machine().cores);
  if (mine == 0 && !binding_.warning.empty()) {
    const std::string why = collectives::why_confined(collectives::confinement());
    options_.log.warning("{}{}{}", binding_.warning, why.empty() ? "" : "; ", why);
  }
  if (!options_.bind) binding_.processors.assign(options_.devices.size(), {});
}

Synchronous::~Synchronous() {
  if (watch_) watch_->release();
  watch_.reset();
}

std::chrono::milliseconds Synchronous::deadline() const {
  return options_.deadline.value_or(kDeadline);
}

int Synchronous::first_rank() const {
  return topology_.ranks_of_process(bootstrap_.process()).front();
}

engine::Membership Synchronous::membership() const {
  engine::Membership membership;
  membership.rank = first_rank();
  membership.local = int(options_.devices.size());
  membership.size = int(host_.size());
  membership.chief = membership.rank == 0;
  membership.host = bootstrap_.hosts()[std::size_t(bootstrap_.process())];
  membership.generation = generation_;
  return membership;
}

std::size_t Synchronous::largest_share(std::size_t batch, int accumulate) const {
  std::size_t largest = 1;
  for (int rank = 0; rank < int(host_.size()); ++rank) {
    const engine::Range mine =
        engine::share_of({0, batch}, rank, int(host_.size()), options_.shares);
    largest = std::max(largest, mine.size());
  }
  return (largest + std::size_t(accumulate) - 1) / std::size_t(accumulate);
}

// Everybody shows everybody the same text; a few lines that differ are shown. Where the first line
// is a heading and differs, it alone is: the others follow from it.
void Synchronous::compare(const std::string& mine, const std::string& what, bool heading) {
  const std::vector<std::string> all = bootstrap_.all_gather(mine, what);
  for (std::size_t process = 1; process < all.size(); ++process) {
    if (all[process] == all[0]) continue;
    std::vector<std::string> ours = lines_of(all[0]), theirs = lines_of(all[process]);
    ours.resize(std::max(ours.size(), theirs.size()), "(nothing)");
    theirs.resize(ours.size(), "(nothing)");
    std::string differences;
    int left = heading && ours[0] != theirs[0] ? 1 : kMostDifferences;
    for (std::size_t i = 0; i < ours.size() && left > 0; ++i) {
      if (ours[i] == theirs[i]) continue;
      differences += fmt::format("; '{}' and not '{}'", theirs[i], ours[i]);
      --left;
    }
    leave_together(what);
    engine::fail(Code::kInvalid,
                 "process {} was started differently from process 0 ({}){}: give all the same",
                 process, what, differences);
  }
}

// All processes are about to throw the same. Who still waits here when the first has left must not
// take it for dead.
void Synchronous::leave_together(const std::string& what) {
  {
    std::scoped_lock lock(watch_mutex_);
    meeting_ = false;
  }
  bootstrap_.all_gather("", what);
}

void Synchronous::together(const std::function<void()>& body, std::string_view what) {
  const std::string name(what);
  std::string mine;  // an error, as bytes
  try {
    body();
  } catch (const Error& error) {
    mine = engine::to_bytes(error);
  } catch (const std::exception& error) {  // such as no memory: others must not wait for this one
    mine = engine::to_bytes({Code::kIo, fmt::format("{}: {}", name, error.what())});
  }
  bool before = false;
  {
    std::scoped_lock lock(watch_mutex_);
    before = std::exchange(meeting_, true);
  }
  for (const std::string& text : bootstrap_.all_gather(mine, name)) {
    if (text.empty()) continue;
    leave_together(name);
    const auto error = engine::read_error(text);
    if (!error) throw Error(Code::kInvalid, "the processes make different calls");
    throw Error(*error);
  }
  std::scoped_lock lock(watch_mutex_);
  meeting_ = before;
}

void Synchronous::open(const engine::GraphSpec& graph, const engine::UpdateRule& rule,
                       const engine::OpenOptions& options) {
  require(options.batch >= 1, "the batch must hold at least one example");
  require(options.accumulate >= 1, "accumulate must be at least 1");
  {
    std::scoped_lock lock(watch_mutex_);  // from here on a death breaks off the exchanges
    meeting_ = true;
    vendor_sums_.reset();
    recordings_.reset();
    mirrors_.clear();
    team_.reset();
  }
  gpu_spaces_.reset(), memory_.reset();
  ++generation_;
  graph_ = graph;
  rule_ = rule;
  open_ = options;

  // Planned with a graph of one row, which takes next to nothing; compared; and only then memory is
  // taken, so that all processes of the host have seen the same memory free.
  const auto ops_of = [&](engine::Device& device, engine::Kernels kernels) {
    return device.ops(options_.step.dtype.value_or(device.default_dtype()),
                      {options_.threads, kernels});
  };
  engine::Device& first_device = *options_.devices[0];
  const auto ops = ops_of(first_device, options_.step.kernels.value_or(engine::Kernels::kAuto));
  queued_ = !ops->in_host_memory();
  const auto check = [&] {
    check_devices(*ops);
    const std::string why = options_.step.graphs == Graphs::kOn ? no_recordings() : "";
    require(why.empty(), "graphs: on was asked for, and cannot be, since {}; leave it to auto",
            why);
  };
  bootstrap_.processes() == 1 ? check() : together(check, "devices");
  planning_ops_ = host_ops(ops->dtype());
  const auto scaled_before = recorded_scaling(open_.plan, ops->dtype());
  rule_.scaling = scaling_of(options_.step.loss_scale, scaled_before, ops->dtype());
  if (scaled_before && *scaled_before != rule_.scaling)
    options_.log.warning(
        "loss scale {} was asked for, the checkpoint was written with {}: bits may differ",
        text_of(rule_.scaling), text_of(*scaled_before));
  const engine::Graph first(graph, *ops, 1, graph_options());
  const std::string flags = flags_text(options_, rule_, options, first.dtype(), queued_);
  // Of another model one line is enough: the others follow from it. Whether all look for costs is
  // compared before one of them does.
  compare(graph.describe(), "model", true);
  if (bootstrap_.processes() > 1)
    compare(
        fmt::format("{}algorithm: {}\nupdate: {}\nbuckets: {} bytes\ncosts: {}\n"
                    "plan of the checkpoint: {:016x}\n{}",
                    flags, options_.step.algorithm.text(), strategies::name(options_.step.update),
                    options_.step.bucket_bytes, options_.measured ? "measured" : "assumed",
                    engine::hash(options.plan), options.run),
        "flags");
  find_vendor();
  design(first);
  plan_memory(*ops_of(first_device, design_.kernels), first);
  compare(fmt::format("{}kernels: {}\nplan: {:016x}\n{}", flags, engine::name(design_.kernels),
                      collectives::hash(design_.plan), options.run),
          "flags and plan");

  const std::size_t rows = largest_share(options.batch, options.accumulate);
  for (std::size_t i = 0; i < options_.devices.size(); ++i) {
    engine::Device& device = *options_.devices[i];
    mirrors_.push_back(
        std::make_unique<Mirror>(first_rank() + int(i), graph,
                                 OwnOps{ops_of(device, design_.kernels), host_ops(ops->dtype())},
                                 rows, options.seed, graph_options()));
  }
  for (const auto& mirror : mirrors_)
    require(
        mirror->kernels().in_host_memory() == ops->in_host_memory(),
        "replicas on devices with and without memory of their own cannot read each other's: give "
        "devices of one kind");
  const collectives::JobRanks ranks = collectives::ranks_of(bootstrap_, topology_);
  map_memory(ranks);
  open_executors(ranks);
  open_recordings();
  if (!threads_) threads_ = std::make_unique<collectives::ReplicaThreads>(binding_.processors);
  set_start_values();
}

void Synchronous::design(const engine::Graph& graph) {
  DesignOptions design_options{.step = options_.step};
  design_options.step.dtype = graph.dtype();
  design_options.rule = rule_;
  planned_before_ = obey_record(open_.plan, host_, design_options, options_.log);
  other_arithmetic_ =
      membership().chief && other_arithmetic(open_.plan, host_, arithmetic(), options_.log);
  for (engine::Device* device : options_.devices) {
    const std::string choices = recorded_choices(open_.plan, device->instructions());
    if (!choices.empty()) device->adopt_choices(choices);
  }
  DesignInput input;
  input.graph = &graph;
  input.rule = rule_;
  input.host = host_;
  input.totals = kTotals;
  input.metrics_per_rank = kNumbersOfRank;
  input.gather_per_rank = kGather;
  input.unlike = unlike_processors(topology_);
  input.queued = queued_;
  input.vendor = vendor_;
  input.no_vendor = no_vendor_;
  std::optional<StepPrices> prices;
  const StepQuestion question = strategies::question(input, design_options);
  planner_chose_ = !question.sums.empty();
  if (planner_chose_) {
    find_costs();
    prices = price_step(topology_, rule_, question, &bootstrap_);
    input.prices = &*prices;
  }
  design_ = design_step(input, design_options);
}

// Finds what the ranks cost each other, for the planner. Collective.
void Synchronous::find_costs() {
  if (!costs_are_.empty()) return;
  if (queued_ && bootstrap_.processes() == 1) return find_gpu_costs();
  if (queued_) {
    costs_are_ = "assumed: between GPUs of several processes nothing is measured yet";
    return;
  }
  if (!options_.measured) {
    costs_are_ = "assumed, since nothing was measured";
    return;
  }
  collectives::CalibrationOptions calibration;
  calibration.deadline = deadline();
  calibration.network = options_.network;
  calibration.cache = options_.cost_cache;
  calibration.most_touched = options_.most_touched;
  calibration.tell = [this](const std::string& line) { options_.log.info("{}", line); };
  calibration.trials_alone = topology_.hosts.size() == 1;
  collectives::Calibration found = measured_costs(calibration);
  if (!found.note.empty()) options_.log.warning("{}", found.note);
  topology_ = std::move(found.topology);
  const std::string folder = options_.cost_cache.string();
  if (found.cached) {
    costs_are_ = "measured before, and read from " + folder;
    return;
  }
  if (!calibration.trials_alone) {
    costs_are_ = fmt::format("measured in {:.2f} s while the job started", found.seconds);
  } else if (topology_.trials.empty()) {
    costs_are_ = "assumed, since other work disturbed what was timed";
  } else {
    costs_are_ = fmt::format(
        "all-reduces timed in {:.2f} s while the job started, the rest assumed", found.seconds);
  }
  if (found.kept) costs_are_ += ", and kept in " + folder + " for the next such job";
  if (found.disturbed) costs_are_ += "; not kept, since the machine is busy with other work";
}

collectives::Calibration Synchronous::measured_costs(
    const collectives::CalibrationOptions& calibration) {
  const auto ops = options_.devices[0]->ops(engine::DType::kFloat32, {.threads = 1});
  calibrating_ = true;
  try {
    collectives::Calibration found =
        collectives::calibrate(bootstrap_, topology_, *ops, calibration);
    calibrating_ = false;
    return found;
  } catch (...) {  // who throws says why; the watch says no more
    {
      std::scoped_lock lock(watch_mutex_);
      meeting_ = false;
    }
    calibrating_ = false;
    throw;
  }
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

// What moves the plans: connections between hosts, an executor of each replica, the threads.
void Synchronous::open_executors(const collectives::JobRanks& ranks) {
  auto transports =
      collectives::connect_hosts(ranks, design_.plan, options_.network, deadline(), "");
  collectives::ExecutorOptions executor;
  executor.deadline = deadline();
  executor.hook = options_.hook;
  access_ = collectives::memory_access(
      topology_.hosts[std::size_t(host_[std::size_t(first_rank())])].costs);
  executor.stream_from = access_.results;
  executor.cache = access_.touched;
  executor.read_ahead = access_.read_ahead;
  // Of a device with a queue, whose kernels are as quick to end for much as for little.
  if (!mirrors_[0]->kernels().in_host_memory()) executor.blocks_at_once = 1 << 20;
  open_vendor();
  if (vendor_sums_) executor.vendor_sum = std::bind_front(&VendorSums::sum, vendor_sums_.get());
  for (std::size_t i = 0; i < mirrors_.size(); ++i) {
    if (options_.checksums && host_.size() > 1)
      mirrors_[i]->checks.emplace(mirrors_[i]->kernels(), mirrors_[i]->graph,
                                  open_.batch / host_.size());
    mirrors_[i]->open(design_, rule_, *team_, std::move(transports[i]), executor);
  }
  watch_vendor();
  const std::vector<int> machine = bootstrap_.hosts();  // not those of the plan
  const auto beside = std::ranges::count_if(topology_.ranks, [&](const auto& rank) {
    return machine[std::size_t(rank.process)] == machine[std::size_t(bootstrap_.process())];
  });
  communication_threads_ =
      communication_threads({.cores = std::size_t(collectives::machine().cores),
                             .replicas = std::size_t(beside),
                             .threads = std::size_t(options_.threads),
                             .sent = sent_in_step(),
                             .wakes = collectives::transport_of(options_.network) == "tcp",
                             .asked = options_.communication_thread});
}

// Bytes to other hosts, by the rank here that sends most.
std::size_t Synchronous::sent_in_step() const {
  std::vector<std::size_t> sent(topology_.ranks.size(), 0);
  for (std::size_t i = 0; i < design_.plan.size(); ++i) {
    if (int(i) == design_.start) continue;  // once, before the first step
    const auto traffic = collectives::traffic(design_.plan[i].plan);
    for (const int rank : team_->local())
      sent[std::size_t(rank)] += traffic[std::size_t(rank)].bytes;
  }
  return *std::max_element(sent.begin(), sent.end());
}

}  // namespace lockstep::strategies
