// SPDX-License-Identifier: MIT
// lockstep bench: times collectives on this machine by size and algorithm, checks them, and
// compares them with their roofline and with MPI or NCCL. Ranks are the processes of the job,
// threads of this process, or replicas on devices (bench_devices.h). Rank 0 prints. bench/measure.h
// describes the measurement.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "collectives/cost/cost_cache.h"
#include "collectives/job/calibration.h"
#include "collectives/job/rank_processors.h"
#include "collectives/topology/machine.h"
#include "engine/base/quantity.h"
#include "engine/checkpoint/whole_file.h"
#include "engine/ops/ops.h"
#include "strategies/session/session.h"
#include "tools/bench/other_work.h"
#include "tools/bench/overlap.h"
#include "tools/bench/plot.h"
#include "tools/bench/rank_threads.h"
#include "tools/bench/regret.h"
#include "tools/bench/reproducible.h"
#include "tools/bench/room.h"
#include "tools/bench/scaling_runs.h"
#include "tools/bench/verdict.h"
#include "tools/bench_devices.h"
#include "tools/bench_flags.h"
#include "tools/chief_files.h"
#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/leaving.h"
#include "tools/plan_text.h"
#include "tools/standard_streams.h"

namespace lockstep::tools {
namespace {

using bench::Collective;
using bench::Form;
using collectives::Bootstrap;

// Two cores that meet faster than this share caches.
constexpr double kSharedCore = 150;  // ns

// Time for another process to report the reason, before a launcher ends it, too.
constexpr std::chrono::milliseconds kWord{200};

// Checks the file before hours of measuring. A file that did not exist does not exist afterwards.
void require_writable(const std::string& path) {
  const engine::WholeFile tried(path);
}

// Returns whether an option of mpirun makes Open MPI copy messages twice.
bool copies_twice() {
  const char* const mechanism = std::getenv("OMPI_MCA_btl_vader_single_copy_mechanism");
  return mechanism != nullptr && std::string_view(mechanism) == "none";
}

// Binds each rank to a processor of its own if there are enough.
collectives::RankProcessors bind(const collectives::JobRanks& ranks) {
  auto found = collectives::processors_of_ranks(ranks, "processors of the ranks");
  collectives::bind_this_thread(found.binding.processors[0]);
  return found;
}

// Returns the measured costs of the ranks of this job; the same on all. Collectives other than
// all-reduce have only one algorithm, so nothing is measured for them. Call it before any rank is
// bound, because other commands discover and store the costs of an unbound machine.
collectives::Calibration costs(const BenchFlags& f, const bench::Rank& rank, bool threads) {
  const auto found = collectives::discover(rank.job.bootstrap(), {"cpu:0"});
  if (f.assumed || rank.job.size() == 1 || f.collective != "all_reduce") return {.topology = found};
  collectives::CalibrationOptions options;
  // Threads of a benchmark are other ranks than replicas of a job.
  if (!threads) options.cache = collectives::cache_folder();
  options.fresh = true;  // a benchmark needs current costs
  if (!f.verbosity.quiet) options.tell = complain;
  const auto calibration = collectives::calibrate(rank.job, found, rank.ops, options);
  if (!calibration.note.empty()) complain(calibration.note);
  return calibration;
}

std::string ranks_line(const BenchFlags& f, const bench::Rank& rank, int processors, bool threads,
                       double barrier_ns) {
  const std::vector<int>& host = rank.job.ranks().host;
  const int hosts = *std::max_element(host.begin(), host.end()) + 1;
  std::string text = fmt::format(
      "# {} on {}, {}: {}\n", f.title(rank.job.size(), threads ? "threads" : "processes"),
      engine::count_text(std::uint64_t(hosts), "host"),
      engine::count_text(std::uint64_t(processors), "processor"), collectives::machine().cpu);
  if (barrier_ns > 0) {
    text += fmt::format("# barrier of ranks 0 and 1: {:.0f} ns{}\n", barrier_ns,
                        barrier_ns < kSharedCore ? ", so fast that both may share one core" : "");
  }
  text.pop_back();  // newline of the last line
  return text;
}

// Runs the benchmark of one rank, which has a thread of its own: all sizes one after the other.
// Rank 0 prints.
class BenchOfRank {
 public:
  BenchOfRank(const BenchFlags& f, bench::Setting setting, const bench::Rank& rank, bool threads)
      : f_(f), setting_(std::move(setting)), rank_(rank), form_(f.form()), meeting_(rank) {
    const std::vector<int>& host = rank.job.ranks().host;
    setting_.task.host = host;
    setting_.task.threads = threads;
    sizes_ = f.counts();
    bench::require_room(rank, threads, bytes_taken(), "a benchmark of " + f.most());
    const collectives::Calibration found = costs(f, rank, threads);
    kept_ = found.kept;
    if (found.topology.costs_are == "measured") setting_.wire = found.topology.wire.bandwidth;
    rank.job.set_access(collectives::memory_access(
        found.topology.hosts[std::size_t(host[std::size_t(rank.job.rank())])].costs));
    const collectives::RankProcessors processors = bind(rank.job.ranks());
    enough_ = processors.enough;
    const std::size_t here = rank.job.ranks().local().size();
    if (here > std::size_t(processors.of_host) && rank.job.rank() == 0 && !f.verbosity.quiet)
      complain(
          fmt::format("{} ranks share {} and wait for each other, so times, predictions and roof % "
                      "vary from run to run: for steady figures start at most {}",
                      here, engine::count_text(std::uint64_t(processors.of_host), "processor"),
                      processors.of_host));
    const double barrier_ns = meeting_.pair_ns();
    explain(ranks_line(f, rank, processors.of_host, threads, barrier_ns));
    planned_ = bench::planned(setting_.task, found.topology, planned_counts());
  }

  // Returns whether every result was right.
  bool measure() try {
    if (f_.regret) {
      regrets();
    } else if (f_.overlap) {
      overlaps();
    } else if (f_.reproducible) {
      reproducible();
    } else {
      times();
    }
    // With more ranks than processors, ranks wait for each other, which is not other work.
    if (rank_.job.rank() == 0 && enough_ && !other_work_.note().empty())
      complain(other_work_.note());
    if (rank_.job.rank() == 0 && setting_.mpi && copies_twice())
      complain(
          "Open MPI was told not to copy directly between processes "
          "(btl_vader_single_copy_mechanism none), so MPI may take several times as long as it "
          "could: measure without that option");
    for (const std::string& line : verdict_.lines(bench::mpi_name(setting_.task.collective)))
      if (rank_.job.rank() == 0) complain(line);
    return verdict_.right();
  } catch (const engine::Error& error) {
    if (!meeting_.told_by_another(error)) throw;
    std::this_thread::sleep_for(kWord);
    leave(exit_code(error.code()));
  }

 private:
  void say(const std::string& line) const {
    if (rank_.job.rank() == 0 && !line.empty()) print(line + "\n");
  }
  // Prints what people need to read a table: lines that begin with #.
  void explain(const std::string& lines) const {
    if (form_ == Form::kTable && !f_.verbosity.quiet) say(lines);
  }
  // Prints a heading or a row. All ranks wait for it, so that they hear at once if it cannot be
  // printed.
  void say_together(const std::string& row) {
    say(row);
    meeting_.meet();
  }
  // Names the algorithms that "all" leaves out, since others make the same plan.
  void say_same_plans() const {
    if (!planned_ || (f_.algorithm != "all" && !f_.regret)) return;
    std::istringstream lines(same_plans(*planned_));
    for (std::string line; std::getline(lines, line);) explain("# " + line);
  }
  void say_marks() const { explain(fmt::format("# {}; {}", bench::kMarked, bench::kDisturbed)); }
  // Returns the elements of each planned all-reduce, of `count` in all. With --overlap an
  // all-reduce is several buckets, and the planner chooses for one.
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

  // Returns the bytes of one rank at the largest size. The choice of "auto" is not known yet; it
  // takes at least as much as the smallest algorithm.
  std::size_t bytes_taken() const {
    const bench::Task& task = setting_.task;
    const auto elements = [&](std::vector<std::string> names, std::size_t count) {
      std::erase(names, "auto");
      if (!names.empty()) return bench::work_elements(task, names, count);
      std::optional<std::size_t> least;
      for (const std::string& one : bench::asked(task, "all", count)) {
        const std::size_t its = bench::work_elements(task, {one}, count);
        least = std::min(least.value_or(its), its);
      }
      return least.value_or(0);
    };
    // Contests and buckets have no results out of place.
    const bool in_place = f_.regret || f_.overlap || f_.reproducible;
    std::size_t most = 0;
    for (const std::size_t count : sizes_) {
      const auto names = bench::asked(task, f_.algorithm, planned_count(count));
      most = std::max(most,
                      (in_place ? count : elements(names, count)) + (setting_.mpi ? 2 * count : 0));
    }
    return engine::size_of(task.dtype) * most;
  }

  void explain_times(const std::vector<bench::Row>& rows) const {
    const bool one_host = setting_.task.one_host();
    explain(
        "# us, min, p99: median, least and 99th percentile in place; out us: median out of place\n"
        "# algbw, busbw: GB/s in place, of the size and of the bytes that must travel");
    explain(one_host ? "# roof %: the time to read all inputs and write all results once, over us"
                     : "# roof %: the time of these bytes on the measured wire, over us");
    const bool predicts = std::ranges::any_of(
        rows, [](const bench::Row& row) { return row.choice.predicted_us.has_value(); });
    if (predicts)
      explain(fmt::format("# predicted: us by {} costs{}{}{}", f_.assumed ? "assumed" : "measured",
                          kept_ ? ", which train and plan will use" : "",
                          one_host && !f_.assumed ? "; above 4 MiB they are extrapolated" : "",
                          setting_.task.dtype == engine::DType::kFloat32
                              ? ""
                              : "; of float32 sums of as many bytes"));
    if (setting_.mpi)
      explain("# MPI us: median in place of " + collectives::mpi::version() +
              "; ratio: MPI's time over lockstep's\n# copied us: lockstep with buffers of each "
              "process, "
              "as MPI has them; us: in memory that ranks share, as in training");
    explain(bench::legend(rows));
    say_same_plans();
  }

  void times() {
    const bench::Rival rival = setting_.mpi ? bench::Rival::kMpi : bench::Rival::kNone;
    say_together(bench::heading(form_, rival));
    std::vector<bench::Row> rows;
    for (const std::size_t count : sizes_) {
      const std::vector<bench::Choice> among = choices(f_.algorithm, count);
      std::vector<std::string> names;
      for (const bench::Choice& choice : among) names.push_back(choice.algorithm);
      const double barrier_ns = meeting_.pair_ns();  // changes within a run on virtual machines
      const auto measured = bench::measure(rank_, meeting_, setting_, names, count);
      for (std::size_t i = 0; i < among.size(); ++i) {
        bench::Row row;
        row.task = setting_.task;
        row.bytes = count * engine::size_of(setting_.task.dtype), row.count = count;
        row.choice = among[i];
        row.barrier_ns = barrier_ns;
        row.measured = measured[i];
        verdict_.add(row.measured.wrong);
        if (i == 0) verdict_.add_rival(row.measured.rival_wrong);
        other_work_.add(row.measured.in_place.wait);
        rows.push_back(row);
        say_together(bench::to_text(row, form_, rival));
      }
    }
    explain_times(rows);
    explain(bench::summary(rows));
    if (rank_.job.rank() == 0 && enough_ && f_.iterations == 0 && bench::mostly_off(rows))
      complain(
          "most predictions are more than twice off, as if the machine had changed its speed since "
          "its costs were measured: run again");
    if (rank_.job.rank() == 0 && !f_.output.plot.empty()) write_plot(rows);
  }

  void write_plot(const std::vector<bench::Row>& rows) const {
    bench::write_svg(f_.output.plot, rows,
                     f_.title(rank_.job.size(), setting_.task.threads ? "threads" : "processes") +
                         ", " + collectives::machine().cpu,
                     bench::mpi_name(setting_.task.collective));
    f_.verbosity.written(f_.output.plot);
  }

  // Returns the algorithms to compare: the requested ones and the planner's choice.
  std::vector<std::string> rivals(const bench::Choice& choice, std::size_t count) const {
    std::vector<std::string> among;
    for (const auto& one : choices(f_.algorithm == "auto" ? "all" : f_.algorithm, count))
      among.push_back(one.algorithm);
    if (std::find(among.begin(), among.end(), choice.algorithm) == among.end())
      among.push_back(choice.algorithm);
    return among;
  }

  void regrets() {
    std::vector<std::string> columns;  // of all sizes; choices differ by size
    for (const std::size_t count : sizes_)
      for (const std::string& name : rivals(choices("auto", count).front(), count))
        if (std::find(columns.begin(), columns.end(), name) == columns.end())
          columns.push_back(name);
    say_together(bench::heading(columns, form_));
    std::vector<bench::Regret> found;
    for (const std::size_t count : sizes_) {
      const bench::Choice choice = choices("auto", count).front();
      found.push_back(
          bench::regret(rank_, meeting_, setting_, choice, rivals(choice, count), count));
      verdict_.add(found.back().wrong);
      other_work_.add(found.back().wait);
      say_together(bench::to_text(found.back(), columns, form_));
    }
    explain(
        fmt::format("# us: medians in place; regret: choice us over best us\n"
                    "# First all algorithms were timed (columns on the right), then the choice and "
                    "the best of these again.\n# {}",
                    bench::kDisturbed));
    say_same_plans();
    explain(bench::summary(found));
  }

  void overlaps() {
    say_together(bench::overlap_heading(form_));
    for (const std::size_t count : sizes_) {
      for (const auto& choice : choices(f_.algorithm, count)) {
        const auto found = bench::overlap(rank_, meeting_, setting_, choice, count);
        verdict_.add(found.wrong);
        other_work_.add(found.wait);
        say_together(bench::to_text(found, form_));
      }
    }
    explain(fmt::format(
        "# bytes: of {} buckets together; medians: a backward pass without sums, the sums alone, "
        "both together\n"
        "# hidden %: part of the sums' time that runs beside the backward pass; below 0 "
        "if both together take longer than one after the other{}",
        bench::kBuckets,
        setting_.task.one_host() ? "; - on one host, whose processors do both" : ""));
    say_marks();
    say_same_plans();
  }

  void reproducible() {
    say_together(bench::reproducible_heading(form_));
    for (const std::size_t count : sizes_) {
      for (const auto& choice : choices(f_.algorithm, count)) {
        const auto found = bench::reproducible(rank_, meeting_, setting_, choice, count);
        verdict_.add(found.wrong);
        other_work_.add(found.wait);
        say_together(bench::to_text(found, form_));
      }
    }
    explain(
        "# plain: a Communicator's sum in memory of the caller, which it copies (bench without "
        "--reproducible sums in shared memory)\n"
        "# times: reproducible over plain; bits: a checksum of the result, the same for all "
        "algorithms and layouts");
    say_marks();
    say_same_plans();
  }

  const BenchFlags& f_;
  bench::Setting setting_;
  bench::Rank rank_;
  Form form_;
  bench::Meeting meeting_;
  std::vector<std::size_t> sizes_;  // elements
  std::optional<collectives::Choices> planned_;
  bench::Verdict verdict_;
  bench::OtherWork other_work_;
  bool kept_ = false;   // the costs, for later jobs
  bool enough_ = true;  // a processor for every rank
};

bool on_threads(const BenchFlags& f, const bench::Setting& setting, strategies::Session& session,
                int count) {
  std::atomic<bool> right{true};
  bench::on_threads(std::vector<int>(std::size_t(count), 0), session,
                    std::chrono::seconds(f.deadline), [&](const bench::Rank& rank) {
                      if (!BenchOfRank(f, setting, rank, true).measure()) right = false;
                    });
  return right;
}

// Returns the runs of --scaling.
bench::ScalingRuns scaling_runs(const BenchFlags& f, const bench::Setting& setting) {
  const auto costs_of = [&f](const bench::Rank& rank) {
    collectives::Topology topology = costs(f, rank, false).topology;
    bind(rank.job.ranks());
    return topology;
  };
  return {f.scale(), f.gradients_bytes(), setting, f.form(), costs_of};
}

// Returns the exit code; a wrong result is a defect.
ExitCode code_of(bool right) {
  return right ? kDone : kDefect;
}

// Returns the flags of a process that --rank numbers: --ranks then counts processes, not threads.
BenchFlags launched(BenchFlags f) {
  if (f.network.launch.rank && f.ranks > 0) f.network.launch.ranks = std::exchange(f.ranks, 0);
  together([&] { f.network.launch.publish(); });
  return f;
}

int run_bench(const BenchFlags& f, const Program& program) {
  const int processes = strategies::launch().size;
  std::optional<bench::ScalingRuns> runs;
  const bench::Setting setting = together([&] {
    bench::Setting s = f.setting();
    f.require_possible(processes);
    bench::Task task = s.task;  // reports unknown names before the job starts
    task.host.assign(1, 0);
    bench::asked(task, f.algorithm, 1);
    if (f.scaling.on) runs.emplace(scaling_runs(f, s));
    if (processes == 1 && f.scaling.links.empty() && !f.on_devices())
      bench::require_mappings(f.threads(), f.reproducible);
    return s;
  });
  const bool each_host = true;  // hosts may have different interfaces
  strategies::Session session(program.argc, program.argv,
                              {.deadline = std::chrono::seconds(f.deadline),
                               .network = together([&] { return f.network.network(); }, each_host),
                               .insecure = f.network.launch.insecure});
  open_chief_files(session, [&] {
    if (!f.output.plot.empty() && session.launch().rank == 0) require_writable(f.output.plot);
  });
  if (f.on_devices()) return code_of(bench_devices(f, setting, session));
  const std::chrono::seconds deadline(f.deadline);
  if (processes == 1) {
    const int threads = f.threads();
    if (threads == 1 && f.ranks == 0 && f.scaling.links.empty() && !f.verbosity.quiet)
      complain(
          "one process was started, so there is one rank, and nothing to send: mpirun -n 2 starts "
          "two, --ranks 2 makes two of threads");
    const int most = f.ranks == 0 && !f.scaling.links.empty() ? runs->ranks_of_links() : threads;
    return code_of(runs ? runs->threads(most, session, deadline)
                        : on_threads(f, setting, session, threads));
  }
  Bootstrap& bootstrap = session.bootstrap();
  const auto ops = session.device("cpu").ops(engine::DType::kFloat32, {.threads = 1});
  session.connected();
  collectives::Job job(collectives::rank_of_each_process(bootstrap),
                       {.deadline = deadline, .network = session.network()});
  const bench::Rank rank{job, *ops};
  return code_of(runs ? runs->processes(rank) : BenchOfRank(f, setting, rank, false).measure());
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto f = std::make_shared<BenchFlags>();  // lives as long as the parser's callbacks
  declare(app, *f);
  return [f](const Program& program) { return run_bench(launched(*f), program); };
}

}  // namespace lockstep::tools
