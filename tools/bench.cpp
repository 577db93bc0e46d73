// SPDX-License-Identifier: MIT
// lockstep bench: how long collectives take on this machine, by size and algorithm, checked, beside
// their roofline and MPI's own. Ranks are the processes of the job, or threads of this one. Rank 0
// prints. What is measured and how: bench/measure.h.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>

#include "collectives/cost_cache.h"
#include "collectives/machine.h"
#include "collectives/registry.h"
#include "engine/ops/ops.h"
#include "strategies/calibration.h"
#include "strategies/rank_processors.h"
#include "strategies/session/session.h"
#include "tools/bench/overlap.h"
#include "tools/bench/plot.h"
#include "tools/bench/rank_threads.h"
#include "tools/bench/regret.h"
#include "tools/bench/scaling_runs.h"
#include "tools/bounds.h"
#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/leaving.h"
#include "tools/topology_choice.h"
#include "tools/version.h"

namespace lockstep::tools {
namespace {

using bench::Collective;
using bench::Form;
using collectives::Bootstrap;

// A meeting of two cores below this goes through caches that they share.
constexpr double kSharedCore = 150;  // ns

struct Flags {
  std::string min = "4KiB", max = "64MiB", dtype = "float32", op = "sum", algorithm = "auto";
  std::string collective = "all_reduce", check = "all", plot, compare;
  double factor = 2;
  int iterations = 0, warmup = 2, ranks = 0, deadline = 60;
  bool json = false, csv = false, assumed = false, regret = false, overlap = false;
  bool scaling = false;
  bench::ScalingFlags scale;

  Form form() const { return json ? Form::kJson : csv ? Form::kCsv : Form::kTable; }
};

// "64", "4KiB", "1.5MiB", "2MB"; none: it is no size.
std::optional<std::size_t> parsed_size(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(static_cast<const char*>(end), text.data() + text.size());
  const std::pair<const char*, double> units[] = {{"", 1},         {"B", 1},        {"KiB", 0x1p10},
                                                  {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"kB", 1e3},
                                                  {"MB", 1e6},     {"GB", 1e9}};
  for (const auto& [name, factor] : units) {
    const double bytes = number * factor;
    if (error == std::errc() && unit == name && bytes >= 1 && bytes <= 0x1p40)
      return std::size_t(bytes);
  }
  return std::nullopt;
}

CLI::Validator size() {
  return {[](const std::string& text) {
            return parsed_size(text)
                       ? std::string()
                       : fmt::format("must be a size such as 4096, 64KiB, 256MiB, not '{}'", text);
          },
          "SIZE"};
}

CLI::Validator gradients() {
  return {[](const std::string& text) {
            return text == "resnet50" || parsed_size(text)
                       ? std::string()
                       : fmt::format("must be resnet50 or a size such as 64MiB, not '{}'", text);
          },
          "resnet50|SIZE"};
}

std::vector<std::size_t> counts(const Flags& f, engine::DType dtype) {
  const std::size_t width = engine::size_of(dtype);
  const std::size_t most = *parsed_size(f.max);
  std::vector<std::size_t> all;
  for (double bytes = double(*parsed_size(f.min)); bytes <= double(most) * 1.000001;
       bytes *= f.factor) {
    const std::size_t count = std::max<std::size_t>(1, std::size_t(bytes) / width);
    if (all.empty() || all.back() != count) all.push_back(count);
  }
  return all;
}

bench::Setting setting_of(const Flags& f) {
  bench::Setting s;
  s.iterations = f.iterations;
  s.warmup = f.warmup;
  s.mpi = f.compare == "mpi";
  s.check = f.check == "all"    ? bench::Check::kAll
            : f.check == "last" ? bench::Check::kLast
                                : bench::Check::kNone;
  s.task.collective =
      f.collective == "all_reduce" ? Collective::kAllReduce : Collective::kReduceScatter;
  s.task.dtype = engine::dtype_of(f.dtype);
  s.task.op = f.op == "min"       ? engine::ReduceOp::kMin
              : f.op == "max"     ? engine::ReduceOp::kMax
              : f.op == "product" ? engine::ReduceOp::kProduct
                                  : engine::ReduceOp::kSum;
  s.task.mean = f.op == "mean";
  return s;
}

// Before anything is opened: what no job of this build could do.
void require_possible(const Flags& f, const bench::Setting& s, int processes) {
  engine::require(!f.json || !f.csv, "--json and --csv: one of them");
  engine::require(*parsed_size(f.min) <= *parsed_size(f.max), "--min {} is more than --max {}",
                  f.min, f.max);
  engine::require(!engine::is_integer(s.task.dtype) || !s.task.mean,
                  "--op mean needs floating point, not {}", f.dtype);
  engine::require(f.ranks == 0 || processes == 1,
                  "--ranks starts threads in one process, and {} processes were started; they are "
                  "the ranks",
                  processes);
  const bool other = f.regret || f.overlap;
  engine::require(!f.regret || !f.overlap, "--regret and --overlap: one of them");
  engine::require(!f.scaling || !other, "--scaling goes without --regret and --overlap");
  engine::require(!f.scaling || (!s.mpi && f.plot.empty() && f.algorithm == "auto"),
                  "--scaling goes without --compare, --plot and --algorithm");
  engine::require(!f.scaling || s.task.collective == Collective::kAllReduce,
                  "--scaling is of all_reduce, not of {}", f.collective);
  engine::require(f.scaling || f.scale.links.empty(), "--links is for --scaling alone");
  engine::require(f.scale.links.empty() || processes == 1,
                  "--links fakes those of threads of one process, and {} were started", processes);
  engine::require(!other || s.task.collective == Collective::kAllReduce,
                  "--{} is of all_reduce, not of {}", f.regret ? "regret" : "overlap",
                  f.collective);
  engine::require(!other || (processes > 1 || f.ranks != 1), "--{} needs more than one rank",
                  f.regret ? "regret" : "overlap");
  engine::require(!other || (!s.mpi && f.plot.empty()),
                  "--{} goes without --compare and --plot (bench/regrets.py draws regrets)",
                  f.regret ? "regret" : "overlap");
  if (!s.mpi) return;
  engine::require(collectives::mpi::available(),
                  "--compare mpi: this build of lockstep has no MPI (Debian: libopenmpi-dev, then "
                  "meson setup --reconfigure -Dmpi=enabled)");
  engine::require(processes > 1,
                  "--compare mpi needs ranks that are processes: mpirun -n 2 lockstep bench ...");
  engine::require(s.task.collective == Collective::kAllReduce && !s.task.mean,
                  "--compare mpi times MPI_Allreduce, which makes no {} of {}", f.collective, f.op);
  engine::require(engine::size_of(s.task.dtype) > 2,
                  "--compare mpi times MPI_Allreduce, which knows no {}", f.dtype);
}

// Before hours of measuring. What was not there is not there afterwards.
void require_writable(const std::string& path) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  const bool opens = std::ofstream(path, std::ios::app).is_open();
  if (!opens) engine::fail(engine::Code::kIo, "--plot: {} cannot be written", path);
  if (!there) std::filesystem::remove(path, error);
}

// Ranks that are as many as the processors get one each. How many processors the host's ranks may
// use together.
int bind(const strategies::JobRanks& ranks) {
  const auto found = strategies::processors_of_ranks(ranks, "processors of the ranks");
  collectives::bind_this_thread(found.binding.processors[0]);
  return found.of_host;
}

// What the ranks of this job were measured to cost; the same on all. Before any of them is bound:
// that is how other commands find the machine, and the costs that they stored of it.
collectives::Topology costs(const Flags& f, const strategies::Ranks& ranks) {
  const auto found = collectives::discover(ranks.bootstrap, {"cpu:0"});
  if (f.assumed || ranks.size() == 1) return found;
  strategies::CalibrationOptions options;
  options.deadline = ranks.deadline;
  options.network = ranks.network;
  options.cache = collectives::cache_folder();
  options.fresh = true;  // who measures wants to know what is now
  options.version = version();
  const auto calibration = strategies::calibrate(ranks.bootstrap, found, ranks.ops, options);
  if (!calibration.note.empty()) complain(calibration.note);
  return calibration.topology;
}

std::string describe(const strategies::Ranks& ranks, int processors, bool threads,
                     double barrier_ns) {
  const int hosts = *std::max_element(ranks.host.begin(), ranks.host.end()) + 1;
  std::string text =
      fmt::format("# {} {} on {} host{}, {} processor{}: {}\n", ranks.size(),
                  threads ? "threads" : "processes", hosts, hosts == 1 ? "" : "s", processors,
                  processors == 1 ? "" : "s", collectives::machine().cpu);
  if (barrier_ns > 0) {
    text += fmt::format(
        "# two ranks meet in {:.0f} ns{}\n", barrier_ns,
        barrier_ns < kSharedCore ? ": so near that the two processors share one real core" : "");
  }
  text.pop_back();  // the end of its last line
  return text;
}

// The benchmark as one rank does it, which is a thread of its own: all sizes one after the other.
// Rank 0 prints.
class BenchOfRank {
 public:
  BenchOfRank(const Flags& f, bench::Setting setting, const strategies::Ranks& ranks, bool threads)
      : f_(f), setting_(std::move(setting)), ranks_(ranks), form_(f.form()), meeting_(ranks) {
    setting_.task.host = ranks.host;
    const collectives::Topology topology = costs(f, ranks);
    const int processors = bind(ranks);
    const double barrier_ns = meeting_.pair_ns();
    if (form_ == Form::kTable) say(describe(ranks, processors, threads, barrier_ns));
    sizes_ = counts(f, setting_.task.dtype);
    planned_ = bench::planned(setting_.task, topology, planned_counts());
  }

  // True when every result was right.
  bool measure() {
    if (f_.regret) {
      regrets();
    } else if (f_.overlap) {
      overlaps();
    } else {
      times();
    }
    if (ranks_.rank() == 0 && wrong_ > 0)
      complain(fmt::format("{} elements of results are wrong", wrong_));
    return wrong_ == 0;
  }

 private:
  void say(const std::string& line) const {
    if (ranks_.rank() != 0 || line.empty()) return;
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }
  // The elements of each all-reduce that is planned, where `count` are reduced in all: with
  // --overlap they are some buckets, and the planner chooses for one.
  std::size_t planned_count(std::size_t count) const {
    return f_.overlap ? std::max<std::size_t>(1, count / bench::kBuckets) : count;
  }
  std::vector<std::size_t> planned_counts() const {
    std::vector<std::size_t> counts;
    for (const std::size_t count : sizes_) counts.push_back(planned_count(count));
    return counts;
  }
  std::vector<bench::Choice> choices(const std::string& wanted, std::size_t count) const {
    return bench::choices(setting_.task, wanted, planned_count(count), planned_);
  }

  void times() {
    if (form_ == Form::kTable)
      say("# us: median, least and 99th percentile in place, then the median out of place; GB/s in "
          "place");
    say(bench::heading(form_, setting_.mpi));
    std::vector<bench::Row> rows;
    for (const std::size_t count : sizes_) {
      for (const auto& choice : choices(f_.algorithm, count)) {
        bench::Row row;
        row.bytes = count * engine::size_of(setting_.task.dtype), row.count = count;
        row.choice = choice;
        row.bus_factor = setting_.task.bus_factor();
        row.barrier_ns = meeting_.pair_ns();  // which on virtual machines changes within a run
        row.measured = bench::measure(ranks_, meeting_, setting_, choice.algorithm, count);
        wrong_ += row.measured.wrong;
        rows.push_back(row);
        say(bench::to_text(row, form_, setting_.mpi));
      }
    }
    if (ranks_.rank() == 0 && !f_.plot.empty()) plot(rows);
  }

  void plot(const std::vector<bench::Row>& rows) const {
    std::ofstream file(f_.plot);
    file << bench::to_svg(rows, fmt::format("{} of {} ({}), {} ranks", f_.collective, f_.dtype,
                                            f_.op, ranks_.size()));
    if (!file.flush()) engine::fail(engine::Code::kIo, "{} cannot be written", f_.plot);
  }

  // The planner's choice against those that were asked for, and it.
  void regrets() {
    std::vector<bench::Regret> found;
    for (const std::size_t count : sizes_) {
      const bench::Choice choice = choices("auto", count).front();
      std::vector<std::string> among;
      for (const auto& one : choices(f_.algorithm == "auto" ? "all" : f_.algorithm, count))
        among.push_back(one.algorithm);
      if (std::find(among.begin(), among.end(), choice.algorithm) == among.end())
        among.push_back(choice.algorithm);
      found.push_back(bench::regret(ranks_, meeting_, setting_, choice, among, count));
      wrong_ += found.back().wrong;
      if (found.size() == 1) say(bench::heading(found.back(), form_));
      say(bench::to_text(found.back(), form_));
    }
    if (form_ == Form::kTable) say(bench::summary(found));
  }

  void overlaps() {
    say(bench::overlap_heading(form_));
    for (const std::size_t count : sizes_) {
      for (const auto& choice : choices(f_.algorithm, count)) {
        const auto found = bench::overlap(ranks_, meeting_, setting_, choice, count);
        wrong_ += found.wrong;
        say(bench::to_text(found, form_));
      }
    }
  }

  const Flags& f_;
  bench::Setting setting_;
  const strategies::Ranks& ranks_;
  Form form_;
  bench::Meeting meeting_;
  std::vector<std::size_t> sizes_;  // elements
  std::optional<collectives::Choices> planned_;
  std::size_t wrong_ = 0;
};

bool on_threads(const Flags& f, const bench::Setting& setting, strategies::Session& session,
                int count) {
  std::atomic<bool> right{true};
  bench::on_threads(std::vector<int>(std::size_t(count), 0), session,
                    std::chrono::seconds(f.deadline), [&](const strategies::Ranks& ranks) {
                      if (!BenchOfRank(f, setting, ranks, true).measure()) right = false;
                    });
  return right;
}

// The table of --scaling.
bench::ScalingRuns scaling_runs(const Flags& f, const bench::Setting& setting) {
  const auto bytes = f.scale.gradients == "resnet50" ? 0 : parsed_size(f.scale.gradients).value();
  const auto costs_of = [&f](const strategies::Ranks& ranks) {
    collectives::Topology topology = costs(f, ranks);
    bind(ranks);
    return topology;
  };
  return {f.scale, bytes, setting, f.form(), costs_of};
}

int run(const Flags& f, const Program& program) {
  const int processes = collectives::mpi::launch().size;
  std::optional<bench::ScalingRuns> runs;
  const bench::Setting setting = together([&] {
    bench::Setting s = setting_of(f);
    require_possible(f, s, processes);
    if (f.algorithm != "auto" && f.algorithm != "all") {  // unknown names, before the job meets
      bench::Task task = s.task;
      task.host.assign(1, 0);
      bench::choices(task, f.algorithm, 1, std::nullopt);
    }
    if (f.scaling) runs.emplace(scaling_runs(f, s));
    if (!f.plot.empty() && collectives::mpi::launch().rank == 0) require_writable(f.plot);
    return s;
  });
  strategies::Session session(program.argc, program.argv,
                              {.deadline = std::chrono::seconds(f.deadline)});
  const std::chrono::seconds deadline(f.deadline);
  if (processes == 1) {
    const int threads = f.ranks > 0 ? f.ranks : 2;
    if (!runs) return on_threads(f, setting, session, threads) ? kDone : kDefect;
    const int most = f.ranks == 0 && !f.scale.links.empty() ? runs->ranks_of_links() : threads;
    return runs->threads(most, session, deadline) ? kDone : kDefect;
  }
  Bootstrap& bootstrap = session.bootstrap();
  const auto ops = session.device("cpu").ops(engine::DType::kFloat32, {.threads = 1});
  session.connected();
  const strategies::Ranks ranks{strategies::rank_of_each_process(bootstrap), *ops, deadline};
  const bool right =
      runs ? runs->processes(ranks) : BenchOfRank(f, setting, ranks, false).measure();
  return right ? kDone : kDefect;
}

std::string known_algorithms() {
  std::string names;
  for (const auto& algorithm : collectives::all_reduce_algorithms())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", algorithm.name);
  return names;
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto f = std::make_shared<Flags>();  // lives as long as the parser's callbacks
  app.add_option("--min", f->min, "smallest size of one rank's input")
      ->check(size())
      ->capture_default_str();
  app.add_option("--max", f->max, "largest")->check(size())->capture_default_str();
  app.add_option("--factor", f->factor, "from one size to the next")
      ->check(number_above(1, 1e6))
      ->capture_default_str();
  app.add_option("--iterations", f->iterations, "timed rounds of each size; 0: by size")
      ->check(whole_number(0, 50'000))
      ->capture_default_str();
  app.add_option("--warmup", f->warmup, "untimed rounds at the beginning of each turn")
      ->check(whole_number(0, 50'000))
      ->capture_default_str();
  app.add_option("--dtype", f->dtype, "element type")
      ->check(one_of({"float32", "float64", "float16", "bfloat16", "int32", "int64"}))
      ->capture_default_str();
  app.add_option("--op", f->op, "operation")
      ->check(one_of({"sum", "mean", "min", "max", "product"}))
      ->capture_default_str();
  app.add_option("--algorithm", f->algorithm,
                 fmt::format("auto, all, or some of {} with commas between", known_algorithms()))
      ->capture_default_str();
  app.add_option("--collective", f->collective, "what is timed")
      ->check(one_of({"all_reduce", "reduce_scatter"}))
      ->capture_default_str();
  app.add_option("--check", f->check, "rounds whose results are compared with the exact ones")
      ->check(one_of({"all", "last", "none"}))
      ->expected(0, 1)
      ->default_str("all");
  app.add_option("--ranks", f->ranks, "threads of this process, without mpirun; 0: two")
      ->check(whole_number(0, 256))
      ->capture_default_str();
  app.add_option("--compare", f->compare, "time this, too, in turn")->check(one_of({"mpi"}));
  app.add_option("--deadline", f->deadline, "seconds of every wait for another rank")
      ->check(whole_number(1, 86'400))
      ->capture_default_str();
  app.add_flag("--assumed", f->assumed,
               "choose and predict without measuring first what ranks cost each other");
  app.add_flag("--regret", f->regret,
               "what the planner's choice costs against the best of --algorithm (default: all)");
  app.add_flag("--overlap", f->overlap, "how much of the all-reduce a backward pass hides");
  app.add_flag("--scaling", f->scaling,
               "weak and strong scaling over 1, 2, 4, ... ranks that compute nothing: their time "
               "and their gradients are faked");
  app.add_option("--gradients", f->scale.gradients,
                 "for --scaling: resnet50, or how large they are together")
      ->check(gradients())
      ->capture_default_str();
  app.add_option("--compute-ms", f->scale.compute_ms,
                 "for --scaling: computing of one rank's step; 350: a V100, 128 images, float32")
      ->check(number_above(0, 1e6))
      ->capture_default_str();
  app.add_option("--batch", f->scale.batch, "for --scaling: images of one rank's step")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--links", f->scale.links,
                 topology_help("for --scaling: fake the links of this cluster, one thread a rank"));
  app.add_flag("--json", f->json, "one JSON object a line instead of the table");
  app.add_flag("--csv", f->csv, "comma-separated values instead of the table");
  app.add_option("--plot", f->plot, "file for a picture (SVG)");
  return [f](const Program& program) { return run(*f, program); };
}

}  // namespace lockstep::tools
