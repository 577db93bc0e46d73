// SPDX-License-Identifier: MIT
#include "tools/bench_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "collectives/algorithms/registry.h"
#include "collectives/cost/size_rules.h"
#include "collectives/mpi/mpi_bootstrap.h"
#include "engine/base/error.h"
#include "engine/base/quantity.h"
#include "tools/bounds.h"
#include "tools/help.h"
#include "tools/topology_choice.h"

namespace lockstep::tools {
namespace {

using bench::Collective;

constexpr const char *kUsualMin = "4KiB", *kUsualMax = "64MiB";

constexpr std::size_t kLargest = std::size_t(1) << 40;  // size

std::size_t least(const BenchFlags& f) {
  return collectives::parse_size(f.fewest());
}

std::size_t largest(const BenchFlags& f) {
  return collectives::parse_size(f.most());
}

// Throws Error(kInvalid) for a flag without effect.
void require_effect(const BenchFlags& f) {
  const std::pair<const char*, bool> of_sizes[] = {{"--min", f.sizes.min.has_value()},
                                                   {"--max", f.sizes.max.has_value()},
                                                   {"--factor", f.sizes.factor.has_value()},
                                                   {"--warmup", f.warmup.has_value()}};
  for (const auto& [name, given] : of_sizes)
    engine::require(!f.scaling.on || !given,
                    "--scaling times whole steps of --gradients, so {} has no effect: leave it out",
                    name);
  const std::pair<const char*, bool> of_scaling[] = {
      {"--gradients", f.scaling.gradients.has_value()},
      {"--compute-ms", f.scaling.compute_ms.has_value()},
      {"--batch", f.scaling.batch.has_value()},
      {"--links", !f.scaling.links.empty()}};
  for (const auto& [name, given] : of_scaling)
    engine::require(f.scaling.on || !given, "{} is for --scaling alone", name);
  engine::require(f.on_devices() || !f.devices.copy, "--copy is for --device and --devices alone");
  engine::require(f.scaling.links.empty() || !f.assumed,
                  "--links says what things cost, so --assumed has no effect: leave it out");
}

// Throws Error(kInvalid) for flags that do not fit ranks on devices. These are replicas of one
// process, whose steps sum gradients.
void require_of_devices(const BenchFlags& f, const bench::Setting& s, int processes) {
  const char* const flag = f.devices.each.empty() ? "--device" : "--devices";
  engine::require(processes == 1,
                  "{} times replicas of one process, and {} processes were started: start one, "
                  "without mpirun",
                  flag, processes);
  engine::require(f.devices.each.empty() || f.ranks == 0,
                  "--devices gives each rank a device, so --ranks has no effect: leave it out");
  const std::string other = f.scaling.on ? "scaling" : f.other();
  engine::require(other.empty(), "{} goes without --{}, which times ranks on processors alone",
                  flag, other);
  engine::require(s.task.collective == Collective::kAllReduce && f.operation() == "sum",
                  "{} times the sums of all_reduce, not {} of {}", flag, f.operation(),
                  f.collective);
  engine::require(!s.mpi, "--compare mpi is of ranks on processors; NCCL is timed beside GPUs");
  engine::require(!f.warmup, "{} times batches of calls, so --warmup has no effect: leave it out",
                  flag);
  engine::require(f.network.given().empty(),
                  "{} sends nothing between hosts, so {} has no effect: leave it out", flag,
                  f.network.given());
}

std::string known_algorithms() {
  std::string names;
  for (const auto& algorithm : collectives::all_reduce_algorithms())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", algorithm.name);
  return names;
}

void declare_sizes(CLI::App& app, BenchFlags& f) {
  app.option_defaults()->group("Sizes");
  app.add_option("-b,--min,--minbytes", f.sizes.min,
                 "smallest size of one rank's input, rounded down to elements; for all_gather of "
                 "its result "
                 "(default: 4KiB)")
      ->check(byte_size(1, kLargest));
  app.add_option("-e,--max,--maxbytes", f.sizes.max, "largest size (default: 64MiB)")
      ->check(byte_size(1, kLargest))
      ->capture_default_str();
  app.add_option("-f,--factor,--stepfactor", f.sizes.factor,
                 "factor between one size and the next (default: 2)")
      ->check(number_from(1.001, 1e6));  // a smaller factor gives endless sizes
}

void declare_operation(CLI::App& app, BenchFlags& f) {
  app.option_defaults()->group("Operation");
  app.add_option("--collective", f.collective, "collective to time")
      ->check(one_of({"all_reduce", "reduce_scatter", "all_gather", "broadcast"}))
      ->capture_default_str();
  app.add_option("-d,--dtype,--datatype", f.dtype, "element type")
      ->check(
          one_of({"float32", "float64", "float16", "bfloat16", "int32", "int64"}, dtype_synonyms()))
      ->capture_default_str();
  app.add_option("-o,--op", f.op, "reduction operation (default: sum)")
      ->check(one_of({"sum", "mean", "min", "max", "product"},
                     {{"avg", "mean"}, {"average", "mean"}, {"prod", "product"}}));
  app.add_option(
         "--algorithm", f.algorithm,
         fmt::format(
             "algorithms to time: auto, all (each plan once), or a list of auto, {} with commas "
             "between; or by size, below and from 64 KiB: direct:..64k,ring:64k..",
             known_algorithms()))
      ->capture_default_str();
  app.add_flag("--assumed", f.assumed,
               "choose and predict by assumed costs; measure none between ranks");
}

void declare_measurement(CLI::App& app, BenchFlags& f) {
  app.option_defaults()->group("Measurement");
  app.add_option("-n,--iterations,--iters", f.iterations,
                 "timed iterations of each size; 0: chosen by size")
      ->check(whole_number(0, 50'000))
      ->capture_default_str();
  app.add_option("-w,--warmup,--warmup_iters", f.warmup,
                 "untimed iterations at the beginning of each round (default: 2, or none if one "
                 "takes a second)")
      ->check(whole_number(0, 50'000));
  app.add_option("--check", f.check, "iterations whose results are compared with the exact ones")
      ->check(one_of({"all", "last", "none"}))
      ->expected(0, 1)
      ->default_str("all");
  app.add_option("--compare", f.compare, "time this too, in alternation")->check(one_of({"mpi"}));
  app.add_flag("--regret", f.regret,
               "compare the planner's choice with the best of --algorithm (default: all)");
  app.add_flag("--overlap", f.overlap, "measure how much of the all-reduce backward hides");
  app.add_flag("--reproducible", f.reproducible,
               "measure the cost of sums that have the same bits with every algorithm");
}

void declare_scaling(CLI::App& app, BenchFlags& f) {
  app.option_defaults()->group("Scaling");
  app.add_flag(
      "--scaling", f.scaling.on,
      "measure weak and strong scaling over 1, 2, 4, ... ranks; with simulated computation "
      "and gradients");
  app.add_option("--gradients", f.scaling.gradients,
                 "total size of the gradients, or resnet50; needs --scaling (default: resnet50)")
      ->check(byte_size(1, kLargest, 1, "resnet50"));
  app.add_option("--compute-ms", f.scaling.compute_ms,
                 "computation time of one rank's step; needs --scaling (default: 350, a V100 with "
                 "128 images in float32)")
      ->check(number_above(0, 1e6));
  app.add_option("--batch", f.scaling.batch,
                 "images of one rank's step; needs --scaling (default: 128)")
      ->check(whole_number(1, 1'000'000));
  app.add_option("--links", f.scaling.links,
                 topology_help("simulated links of a cluster, with a thread for each rank; needs "
                               "--scaling"))
      ->check(file_name("a file or of an example"));
}

void declare_ranks(CLI::App& app, BenchFlags& f) {
  app.option_defaults()->group("Ranks and devices");
  app.add_option("-t,--ranks,--nthreads", f.ranks,
                 "threads of this process as ranks, without mpirun; 0: two, or one under a "
                 "launcher")
      ->check(whole_number(0, 256))
      ->capture_default_str();
  auto* const device =
      app.add_option("--device", f.devices.all,
                     "time replicas of this process on a device, beside NCCL: cuda:0, or cuda for "
                     "all GPUs in rotation (--ranks, default: 2, or one on each GPU)");
  app.add_option("--devices", f.devices.each, "device of each replica, e.g. cuda:0,cuda:1")
      ->delimiter(',')
      ->excludes(device);
  app.add_option("--copy", f.devices.copy,
                 "size of the copy that gives the roofline; needs --device (default: 256MiB)")
      ->check(byte_size(4096, kLargest));
}

void declare_bench_communication(CLI::App& app, BenchFlags& f) {
  app.option_defaults()->group("Communication");
  app.add_option("--deadline", f.deadline, "seconds that a rank waits for another")
      ->check(whole_number(1, 86'400))
      ->capture_default_str();
  declare(app, f.network);
}

void declare_bench_output(CLI::App& app, BenchFlags& f) {
  app.option_defaults()->group("Output");
  app.add_flag("--json", f.output.json, "print one JSON object per line instead of the table");
  app.add_flag("--csv", f.output.csv, "print comma-separated values instead of the table");
  app.add_option("--plot", f.output.plot, "file for a plot (SVG)")->check(svg_file());
}

}  // namespace

bench::Form BenchFlags::form() const {
  return output.json ? bench::Form::kJson : output.csv ? bench::Form::kCsv : bench::Form::kTable;
}

bench::ScalingFlags BenchFlags::scale() const {
  bench::ScalingFlags scale;
  scale.compute_ms = scaling.compute_ms.value_or(scale.compute_ms);
  scale.batch = scaling.batch.value_or(scale.batch);
  scale.links = scaling.links;
  return scale;
}

std::string BenchFlags::title(int count, const char* kind) const {
  const std::string operated = setting().task.reduces() ? fmt::format(" ({})", operation()) : "";
  return fmt::format("{} of {}{}, {} ({})", collective, dtype, operated,
                     engine::count_text(std::uint64_t(count), "rank"), kind);
}

std::string BenchFlags::fewest() const {
  if (sizes.min) return *sizes.min;
  return sizes.max && collectives::parse_size(*sizes.max) < collectives::parse_size(kUsualMin)
             ? *sizes.max
             : kUsualMin;
}

std::string BenchFlags::most() const {
  if (sizes.max) return *sizes.max;
  return sizes.min && collectives::parse_size(*sizes.min) > collectives::parse_size(kUsualMax)
             ? *sizes.min
             : kUsualMax;
}

int BenchFlags::threads() const {
  return ranks > 0 ? ranks : strategies::launch().present ? 1 : 2;
}

std::size_t BenchFlags::gradients_bytes() const {
  return !scaling.gradients || *scaling.gradients == "resnet50"
             ? 0
             : collectives::parse_size(*scaling.gradients);
}

std::vector<std::size_t> BenchFlags::counts() const {
  const std::size_t width = engine::size_of(engine::dtype_of(dtype));
  std::vector<std::size_t> all;
  for (double bytes = double(least(*this)); bytes <= double(largest(*this)) * 1.000001;
       bytes *= sizes.factor.value_or(2)) {
    const std::size_t count = std::max<std::size_t>(1, std::size_t(bytes) / width);
    if (all.empty() || all.back() != count) all.push_back(count);
  }
  return all;
}

bench::Setting BenchFlags::setting() const {
  bench::Setting s;
  s.iterations = iterations;
  s.warmup = warmup;
  s.mpi = compare == "mpi";
  s.check = check == "all"    ? bench::Check::kAll
            : check == "last" ? bench::Check::kLast
                              : bench::Check::kNone;
  for (const Collective one : bench::kCollectives)
    if (collective == name(one)) s.task.collective = one;
  s.task.dtype = engine::dtype_of(dtype);
  s.task.op = operation() == "min"       ? engine::ReduceOp::kMin
              : operation() == "max"     ? engine::ReduceOp::kMax
              : operation() == "product" ? engine::ReduceOp::kProduct
                                         : engine::ReduceOp::kSum;
  s.task.mean = operation() == "mean";
  return s;
}

void BenchFlags::require_possible(int processes) const {
  const bench::Setting s = setting();
  require_effect(*this);
  engine::require(!output.json || !output.csv, "--json and --csv: one of them");
  engine::require(least(*this) <= largest(*this), "--min {} is more than --max {}", fewest(),
                  most());
  engine::require(!engine::is_integer(s.task.dtype) || !s.task.mean,
                  "--op mean needs floating point, not {}", dtype);
  engine::require(s.task.reduces() || !op,
                  "--collective {} reduces nothing, so --op has no effect: leave it out",
                  collective);
  if (on_devices()) require_of_devices(*this, s, processes);
  engine::require(ranks == 0 || processes == 1,
                  "--ranks starts threads in one process, and {} processes were started; they are "
                  "the ranks",
                  processes);
  const std::string other = this->other();
  engine::require(int(regret) + int(overlap) + int(reproducible) < 2,
                  "--regret, --overlap and --reproducible: one of them");
  engine::require(!scaling.on || other.empty(), "--scaling goes without --{}", other);
  engine::require(!scaling.on || (!s.mpi && output.plot.empty() && algorithm == "auto"),
                  "--scaling goes without --compare, --plot and --algorithm");
  engine::require(!scaling.on || s.task.collective == Collective::kAllReduce,
                  "--scaling is of all_reduce, not of {}", collective);
  engine::require(scaling.links.empty() || processes == 1,
                  "--links fakes those of threads of one process, and {} were started", processes);
  engine::require(other.empty() || s.task.collective == Collective::kAllReduce,
                  "--{} is of all_reduce, not of {}", other, collective);
  engine::require(other.empty() || processes > 1 || threads() > 1, "--{} needs more than one rank",
                  other);
  engine::require(other.empty() || !s.mpi, "--{} goes without --compare", other);
  engine::require(other.empty() || output.plot.empty(), "--{} draws nothing, so leave --plot out{}",
                  other, regret ? "; bench/regrets.py draws regrets" : "");
  engine::require(!reproducible || (!engine::is_integer(s.task.dtype) &&
                                    (operation() == "sum" || operation() == "mean")),
                  "--reproducible is of sums and means of floating point; of {} {} every order has "
                  "the same result, or no order is given",
                  dtype, operation());
  if (!s.mpi) return;
  engine::require(collectives::mpi::available(),
                  "--compare mpi: this build of lockstep has no MPI (Debian: libopenmpi-dev, then "
                  "meson setup --reconfigure -Dmpi=enabled)");
  engine::require(processes > 1,
                  "--compare mpi needs ranks that are processes: mpirun -n 2 lockstep bench ...");
  if (!s.task.reduces()) return;
  const char* const theirs = mpi_name(s.task.collective);
  engine::require(!s.task.mean, "--compare mpi times {}, which makes no mean", theirs);
  engine::require(engine::size_of(s.task.dtype) > 2, "--compare mpi times {}, which knows no {}",
                  theirs, dtype);
}

void declare(CLI::App& app, BenchFlags& f) {
  declare_sizes(app, f);
  declare_operation(app, f);
  declare_measurement(app, f);
  declare_scaling(app, f);
  declare_ranks(app, f);
  declare_bench_communication(app, f);
  declare_bench_output(app, f);
  declare_quiet(app, f.verbosity);
  end_help(app,
           "  lockstep bench --ranks 2 -b 4k -e 64m -f 2 --algorithm all --plot all.svg\n"
           "  mpirun -n 2 lockstep bench --compare mpi\n"
           "  lockstep bench --devices cuda:0,cuda:1",
           bench::field_help());
}

}  // namespace lockstep::tools
