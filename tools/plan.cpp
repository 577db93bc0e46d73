// SPDX-License-Identifier: MIT
// lockstep plan: shows the all-reduce algorithm for each size on a cluster, and the reason. The
// cluster is this job, or one that a file or a name describes; it need not exist.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>

#include "collectives/cost/cost_cache.h"
#include "collectives/job/calibration.h"
#include "engine/checkpoint/whole_file.h"
#include "engine/optim/optimizer.h"
#include "engine/runtime/devices.h"
#include "models/registry.h"
#include "strategies/session/session.h"
#include "strategies/synchronous/step_design.h"
#include "tools/bounds.h"
#include "tools/command.h"
#include "tools/device_costs.h"
#include "tools/exit_codes.h"
#include "tools/help.h"
#include "tools/leaving.h"
#include "tools/network_flags.h"
#include "tools/plan_picture.h"
#include "tools/plan_text.h"
#include "tools/standard_streams.h"
#include "tools/topology_choice.h"
#include "tools/verbosity.h"

namespace lockstep::tools {
namespace {

using collectives::Topology;

// Bytes of the all-reduce of --svg and --steps. The largest one takes 2.4 GB of memory for a
// thousand ranks.
constexpr std::size_t kDrawn = std::size_t(1) << 20, kMostDrawn = std::size_t(16) << 30;

struct PlanFlags {
  std::string topology, model, algorithm, svg, topology_out;
  std::optional<std::string> size;   // of --svg and --steps; default: kDrawn
  std::optional<int> replicas;       // without a topology; default: 1
  std::vector<std::string> devices;  // one per replica, instead of `replicas`
  bool json = false, assumed = false, fresh = false, steps = false;
  NetworkFlags network;
  Verbosity verbosity;

  std::size_t drawn() const { return size ? collectives::parse_size(*size) : kDrawn; }
  // Returns the sizes of the table. The plan of the drawn size may differ from its neighbors'.
  std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> sizes = collectives::planned_sizes();
    const auto place = std::ranges::lower_bound(sizes, drawn());
    if (place == sizes.end() || *place != drawn()) sizes.insert(place, drawn());
    return sizes;
  }
};

// Returns the choices of `train` for this model's buckets, and for the update of SGD with momentum.
PlannedModel planned(const PlanFlags& f, const Topology& topology,
                     const collectives::Choices& choices) {
  const engine::GraphSpec spec = models::build(f.model);
  const auto devices = engine::host_devices();
  engine::Device& device = *devices.front();
  const auto ops = device.ops(device.default_dtype(), {});
  const engine::Graph graph(spec, *ops, 1);
  strategies::DesignInput input;
  input.graph = &graph;
  input.rule = engine::optim::sgd({.momentum = 0.9}).rule;
  input.host = topology.host_of_rank();
  input.unlike = strategies::unlike_processors(topology);
  const strategies::DesignOptions options{.step = {.algorithm = f.algorithm}};
  const strategies::StepQuestion question = strategies::question(input, options);
  std::optional<strategies::StepPrices> prices;
  if (!question.sums.empty()) {
    prices = strategies::price_step(topology, input.rule, question);
    input.prices = &*prices;
  }
  const strategies::StepDesign chosen = strategies::choose_step(input, options);
  const bool fused = chosen.update == strategies::Update::kFused && prices && prices->fused;
  const collectives::Choices& of_buckets = fused    ? prices->fused->sums
                                           : prices ? prices->separate.sums
                                                    : choices;
  PlannedModel model{.name = f.model,
                     .optimizer = "SGD with momentum",
                     .buckets = {},
                     .update = std::string(name(chosen.update)),
                     .update_reason = chosen.update_reason.text()};
  for (const engine::Range range : chosen.buckets)
    model.buckets.push_back(
        {range, of_buckets.choose(range.size() * engine::size_of(graph.dtype()))});
  return model;
}

void write_file(const PlanFlags& f, const std::string& path, const std::string& text) {
  engine::WholeFile(path).commit(text);
  f.verbosity.written(path);
}

// Returns the plan of one all-reduce as text.
std::string steps_text(const Topology& topology, const collectives::Choice& choice) {
  const auto request = collectives::priced_request(topology, choice.bytes);
  return fmt::format(
      "all-reduce of {}, {} predicted\n"
      "arrive: tells the others that the lane is here; await 1 of lane 0 of r3: waits for the "
      "first "
      "arrive of that lane\n"
      "reduce 9: r0 r3.gradient+5 -> r0.gradient+5: adds elements 5 to 13 of ranks 0 and 3, and "
      "stores them in rank 0\n{}",
      collectives::size_text(choice.bytes), collectives::time_text(choice.seconds),
      collectives::print(collectives::find_algorithm(choice.algorithm).make(request)));
}

// Prints a warning for each rule of --algorithm that matches no size of the table.
void tell_idle_rules(const PlanFlags& f, const collectives::Choices& choices) {
  const auto& sizes = choices.sizes();
  for (const auto& rule : collectives::parse_size_rules(f.algorithm))
    if (std::none_of(sizes.begin(), sizes.end(),
                     [&](std::size_t bytes) { return rule.from <= bytes && bytes < rule.to; }))
      complain(fmt::format(
          "--algorithm {}: the table has no size at which {} is asked for; it goes from {} to {}",
          f.algorithm, rule.algorithm, collectives::size_text(sizes.front()),
          collectives::size_text(sizes.back())));
}

// Writes the files, then prints the plan. Returns the exit code.
int tell_plan(const PlanFlags& f, const PlanSource& source, const Topology& topology,
              const collectives::Choices& choices) {
  tell_idle_rules(f, choices);
  std::unique_ptr<PlannedModel> model;
  if (!f.model.empty()) model = std::make_unique<PlannedModel>(planned(f, topology, choices));
  if (!f.topology_out.empty()) write_file(f, f.topology_out, to_json(topology) + "\n");
  if (!f.svg.empty()) {
    write_file(f, f.svg,
               plan_picture(source.name, topology, collectives::all_reduce_algorithms(),
                            choices.choose(f.drawn())));
  }
  if (f.steps) {
    print(steps_text(topology, choices.choose(f.drawn())));
    return kDone;
  }
  const std::string text = f.json ? plan_json(source, topology, choices, model.get()) + "\n"
                                  : plan_text(source, topology, choices, model.get());
  print(text);
  return kDone;
}

// Shows the progress of planning on standard error. A terminal gets one line that is rewritten,
// other outputs a line now and then. Planning that takes less than a second shows nothing.
class PlanningProgress {
 public:
  PlanningProgress(bool visible, std::size_t ranks)
      : visible_(visible), terminal_(isatty(STDERR_FILENO) != 0), ranks_(ranks) {}
  ~PlanningProgress() {
    if (drawn_) std::fputs("\r\033[K", stderr);
  }
  PlanningProgress(const PlanningProgress&) = delete;
  PlanningProgress& operator=(const PlanningProgress&) = delete;

  void operator()(std::size_t done, std::size_t all) {
    const double seconds = engine::seconds_since(begin_);
    if (!visible_ || seconds < next_) return;
    next_ = seconds + (terminal_ ? kRedraw : kLine);
    drawn_ = terminal_;
    const std::string line =
        fmt::format("{}lockstep: planning for {} ranks: {} of {} predictions are made{}",
                    terminal_ ? "\r\033[K" : "", ranks_, done, all, terminal_ ? "" : "\n");
    std::fputs(line.c_str(), stderr);  // a failed write is no error
    std::fflush(stderr);
  }

 private:
  static constexpr double kFirst = 1, kRedraw = 0.1, kLine = 5;  // s
  bool visible_, terminal_, drawn_ = false;
  std::size_t ranks_;
  double next_ = kFirst;
  engine::Clock::time_point begin_ = engine::Clock::now();
};

// Plans all sizes, and sets the planning time of `source`. `together`: the bootstrap of the
// processes that plan together; null without a job.
collectives::Choices choose(const PlanFlags& f, const Topology& topology, PlanSource& source,
                            collectives::Bootstrap* together = nullptr) {
  const auto begin = engine::Clock::now();
  const bool first = together == nullptr || together->process() == 0;
  PlanningProgress progress(first && !f.verbosity.quiet, topology.ranks.size());
  auto choices = collectives::plan_all_reduce(topology, collectives::all_reduce_algorithms(),
                                              collectives::parse_size_rules(f.algorithm), f.sizes(),
                                              together, {.progress = std::ref(progress)});
  source.planning_seconds = std::chrono::duration<double>(engine::Clock::now() - begin).count();
  return choices;
}

// Returns a device per replica of this process.
std::vector<engine::Device*> devices_of(const PlanFlags& f, strategies::Session& session) {
  std::vector<engine::Device*> devices;
  for (const std::string& name : f.devices) devices.push_back(&session.device(name));
  if (devices.empty())
    devices.assign(std::size_t(f.replicas.value_or(1)), session.devices()[0].get());
  engine::require(
      !are_gpus(devices) || session.launch().size == 1,
      "--devices {}: between GPUs of several processes nothing is measured; plan them in "
      "one process, or describe them (--topology)",
      fmt::join(f.devices, ","));
  return devices;
}

// Returns the measured costs of the ranks of this job.
collectives::Calibration calibrated(const PlanFlags& f, strategies::Session& session,
                                    const Topology& found) {
  const auto ops = session.devices()[0]->ops(engine::DType::kFloat32, {.threads = 1});
  collectives::CalibrationOptions options;
  options.cache = collectives::cache_folder();
  options.fresh = f.fresh;
  if (!f.verbosity.quiet) options.tell = complain;
  collectives::Job job(collectives::ranks_of(session.bootstrap(), found),
                       {.network = session.network()});
  // The next job uses what a job has measured, even if that timed all-reduces alone.
  collectives::Calibration stored = collectives::stored_costs(job, found, options);
  return stored.cached ? stored : collectives::calibrate(job, found, *ops, options);
}

int plan(const PlanFlags& f, const Program& program) {
  together([&] { f.network.launch.publish(); });
  const int processes = strategies::launch().size;
  together([&] {
    engine::require(!f.size || !f.svg.empty() || f.steps,
                    "--size {} is of the all-reduce that --svg draws and --steps prints: give one "
                    "of them, or leave --size out",
                    f.size.value_or(""));
    collectives::parse_size_rules(f.algorithm);
    if (!f.model.empty()) models::build(f.model);
  });
  if (!f.topology.empty()) {
    return together([&] {
      engine::require(!f.replicas && f.devices.empty(),
                      "--topology says which ranks there are, so {} has no effect: leave it out",
                      f.replicas ? "--replicas" : "--devices");
      engine::require(!f.assumed && !f.fresh,
                      "--topology says what things cost, so {} has no effect: leave it out",
                      f.assumed ? "--assumed" : "--fresh");
      engine::require(f.network.given().empty(),
                      "--topology says what messages cost, so {} has no effect: leave it out",
                      f.network.given());
      engine::require(processes == 1, "plan --topology runs in one process, and {} were started",
                      processes);
      const Topology topology = described_topology(f.topology);
      PlanSource source{f.topology};
      const collectives::Choices choices = choose(f, topology, source);
      return tell_plan(f, source, topology, choices);
    });
  }
  together([&] { engine::require(!f.assumed || !f.fresh, "--assumed and --fresh: one of them"); });
  const bool each_host = true;  // hosts may have different interfaces
  strategies::Session session(program.argc, program.argv,
                              {.network = together([&] { return f.network.network(); }, each_host),
                               .insecure = f.network.launch.insecure});
  const auto devices = together([&] { return devices_of(f, session); }, each_host);
  Topology topology = collectives::discover(session.bootstrap(), names_of(devices));
  session.connected();
  PlanSource source{"this job"};
  const bool gpus = are_gpus(devices);
  if (gpus || !f.assumed) {
    const collectives::Calibration calibration =
        gpus ? device_costs(devices, topology,
                            f.assumed ? DeviceCosts::kAssumed
                            : f.fresh ? DeviceCosts::kFresh
                                      : DeviceCosts::kStored)
             : calibrated(f, session, topology);
    if (!calibration.note.empty()) session.log().warning("{}", calibration.note);
    topology = calibration.topology;
    if (!f.assumed) source.seconds = calibration.seconds, source.stored = calibration.cached;
    source.written = calibration.written;
  }
  // All processes plan together, so that all of them reject impossible flags.
  const auto choices = choose(f, topology, source, &session.bootstrap());
  return session.bootstrap().process() == 0 ? tell_plan(f, source, topology, choices) : int(kDone);
}

}  // namespace

Command add_plan(CLI::App& app) {
  auto f = std::make_shared<PlanFlags>();  // lives as long as the parser's callbacks
  app.option_defaults()->group("Cluster");
  app.add_option("--topology", f->topology, topology_help("a cluster other than this job's"))
      ->check(file_name("a file or of an example"));
  app.add_option("--replicas", f->replicas,
                 "replicas of this process, without --topology (default: 1)")
      ->check(whole_number(1, 256));
  app.add_option("--devices", f->devices,
                 "device of each replica of this process, e.g. cuda:0,cuda:1: measures the costs "
                 "between these GPUs, and keeps them for train")
      ->delimiter(',')
      ->excludes("--replicas");
  app.add_flag("--assumed", f->assumed,
               "measure nothing, and assume the costs of a typical server");
  app.add_flag("--fresh", f->fresh, "measure even if costs of these ranks are stored");
  declare(app, f->network);
  app.option_defaults()->group("Choice");
  app.add_option("--model", f->model, "show the buckets of this model: " + models::list())
      ->check(suggested(models::names()));
  app.add_option("--algorithm", f->algorithm,
                 "algorithm to use instead of the fastest, e.g. direct:..64k,ring:64k..");
  app.option_defaults()->group("Output");
  app.add_option("--topology-out", f->topology_out,
                 "file for hosts, ranks and costs; --topology reads it")
      ->check(file_name());
  app.add_option("--svg", f->svg, "file for a picture of the cluster and of one all-reduce")
      ->check(svg_file());
  app.add_option("--size", f->size, "size of the all-reduce of --svg and --steps (default: 1MiB)")
      ->check(byte_size(1, kMostDrawn));
  auto* const steps = app.add_flag(
      "--steps", f->steps, "print the steps of one all-reduce, rank by rank, instead of the table");
  app.add_flag("--json", f->json, "print one JSON object instead of text")->excludes(steps);
  declare_quiet(app, f->verbosity);
  end_help(app,
           "  lockstep plan --replicas 2\n"
           "  lockstep plan --topology 1x4 --algorithm ring --size 64k --steps\n"
           "  lockstep plan --topology 16x8 --model resnet50 --svg plan.svg\n"
           "  mpirun -n 2 lockstep plan --topology-out job.json");
  return [f](const Program& program) { return plan(*f, program); };
}

}  // namespace lockstep::tools
