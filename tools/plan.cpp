// SPDX-License-Identifier: MIT
// lockstep plan: which all-reduce for which size on a cluster, and why: of this job, or of one that
// a file or a name describes and that nobody need have.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "collectives/cost_cache.h"
#include "collectives/example_topologies.h"
#include "collectives/mpi/mpi_bootstrap.h"
#include "engine/runtime/devices.h"
#include "models/registry.h"
#include "strategies/calibration.h"
#include "strategies/session/session.h"
#include "strategies/step_design.h"
#include "tools/bounds.h"
#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/leaving.h"
#include "tools/plan_picture.h"
#include "tools/plan_text.h"
#include "tools/version.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;
using collectives::Topology;

constexpr std::size_t kMostBytes = std::size_t(16) << 20;  // of a topology's file

struct Flags {
  std::string topology, model, algorithm, svg, size = "1MiB", topology_out;
  int replicas = 1;
  bool json = false, assumed = false, fresh = false;
};

std::string examples(const char* between) {
  std::string text;
  for (const auto& example : collectives::example_topologies())
    text += fmt::format("{}{}", text.empty() ? "" : between, example.name);
  return text;
}

std::string read(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    engine::fail(engine::Code::kIo,
                 "there is no file {}, and no example of that name; examples are: {}", path,
                 examples(", "));
  }
  engine::require(fs::is_regular_file(path, error), "{} is no file", path);
  engine::require(fs::file_size(path, error) <= kMostBytes,
                  "{} is larger than {} MiB, which no topology is", path, kMostBytes >> 20);
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file) engine::fail(engine::Code::kIo, "{} cannot be read", path);
  return text;
}

Topology described(const std::string& name) {
  for (const auto& example : collectives::example_topologies())
    if (example.name == name) return collectives::example_topology(name);
  const std::string text = read(name);
  try {
    Topology topology = collectives::topology_from_json(text);
    engine::require(!topology.ranks.empty(), "it has no ranks");
    return topology;
  } catch (const engine::Error& error) {
    engine::fail(error.code(), "{}: {}", name, error.what());
  }
}

// The borders do not depend on the ranks, so those of one are taken.
PlannedModel planned(const std::string& name, const collectives::Choices& choices) {
  const engine::GraphSpec spec = models::build(name);
  const auto devices = engine::all_devices();
  engine::Device& device = *devices.front();
  const auto ops = device.ops(device.default_dtype(), {});
  const engine::Graph graph(spec, *ops, 1);
  strategies::DesignInput input;
  input.graph = &graph;
  input.host = {0};
  PlannedModel model{.name = name, .buckets = {}};
  for (const engine::Range range : strategies::design_step(input, {}).buckets)
    model.buckets.push_back({range, choices.choose(range.size() * engine::size_of(graph.dtype()))});
  return model;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) engine::fail(engine::Code::kIo, "{} cannot be written", path);
}

// What there is to say; also draws. Files are written before anything is said.
int tell(const Flags& f, const PlanSource& source, const Topology& topology,
         const collectives::Choices& choices) {
  std::unique_ptr<PlannedModel> model;
  if (!f.model.empty()) model = std::make_unique<PlannedModel>(planned(f.model, choices));
  if (!f.topology_out.empty()) write(f.topology_out, to_json(topology) + "\n");
  if (!f.svg.empty()) {
    write(f.svg, plan_picture(source.name, topology, collectives::all_reduce_algorithms(),
                              choices.choose(collectives::parse_size(f.size))));
  }
  const std::string text = f.json ? plan_json(source, topology, choices, model.get()) + "\n"
                                  : plan_text(source, topology, choices, model.get());
  std::fputs(text.c_str(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    engine::fail(engine::Code::kIo, "standard output cannot be written");
  }
  return kDone;
}

collectives::Choices choose(const Flags& f, const Topology& topology) {
  return collectives::plan_all_reduce(topology, collectives::all_reduce_algorithms(),
                                      collectives::parse_size_rules(f.algorithm));
}

// The ranks of this job, measured.
strategies::Calibration calibrated(const Flags& f, strategies::Session& session,
                                   const Topology& found) {
  const auto ops = session.devices()[0]->ops(engine::DType::kFloat32, {.threads = 1});
  strategies::CalibrationOptions options;
  options.network = session.network();
  options.cache = collectives::cache_folder();
  options.fresh = f.fresh;
  options.version = version();
  return strategies::calibrate(session.bootstrap(), found, *ops, options);
}

int plan(const Flags& f, const Program& program) {
  const int processes = collectives::mpi::launch().size;
  if (!f.topology.empty()) {
    return together([&] {
      engine::require(!f.assumed && !f.fresh,
                      "--topology says what things cost, so {} has nothing to do",
                      f.assumed ? "--assumed" : "--fresh");
      engine::require(processes == 1, "plan --topology runs in one process, and {} were started",
                      processes);
      const Topology topology = described(f.topology);
      return tell(f, {f.topology}, topology, choose(f, topology));
    });
  }
  together([&] {
    engine::require(!f.assumed || !f.fresh, "--assumed and --fresh: one of them");
    collectives::parse_size_rules(f.algorithm);
    collectives::parse_size(f.size);
    if (!f.model.empty()) models::build(f.model);
  });
  strategies::Session session(program.argc, program.argv);
  Topology topology = collectives::discover(
      session.bootstrap(),
      std::vector<std::string>(std::size_t(f.replicas), to_string(session.devices()[0]->id())));
  session.connected();
  PlanSource source{"this job"};
  if (!f.assumed) {
    const strategies::Calibration calibration = calibrated(f, session, topology);
    if (!calibration.note.empty()) session.log().warning("{}", calibration.note);
    topology = calibration.topology;
    source.seconds = calibration.seconds, source.stored = calibration.cached;
  }
  const collectives::Choices choices = choose(f, topology);  // so that all refuse what cannot be
  return session.bootstrap().process() == 0 ? tell(f, source, topology, choices) : int(kDone);
}

}  // namespace

Command add_plan(CLI::App& app) {
  auto f = std::make_shared<Flags>();  // lives as long as the parser's callbacks
  std::string names = "a cluster other than this job's: a JSON file, or an example:";
  for (const auto& example : collectives::example_topologies())
    names += fmt::format(" {} ({});", example.name, example.about);
  names.pop_back();
  app.add_option("--topology", f->topology, names);
  app.add_option("--replicas", f->replicas, "of this process, where no topology is given")
      ->check(whole_number(1, 256))
      ->capture_default_str();
  app.add_option("--model", f->model, "show this model's buckets: " + models::list());
  app.add_option("--algorithm", f->algorithm,
                 "what to use instead of the cheapest, e.g. direct:..64k,ring:64k..");
  app.add_flag("--assumed", f->assumed,
               "measure nothing: take the costs of a server of the middle");
  app.add_flag("--fresh", f->fresh, "measure, also where costs of these ranks are stored");
  app.add_option("--topology-out", f->topology_out,
                 "write hosts, ranks and costs into this file, for --topology");
  app.add_option("--svg", f->svg, "draw the cluster and one all-reduce into this file");
  app.add_option("--size", f->size, "bytes of the all-reduce that --svg draws")
      ->capture_default_str();
  app.add_flag("--json", f->json, "one JSON object instead of text");
  return [f](const Program& program) { return plan(*f, program); };
}

}  // namespace lockstep::tools
