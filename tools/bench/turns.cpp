// SPDX-License-Identifier: MIT
#include "tools/bench/turns.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>

#include "tools/bench/other_work.h"
#include "tools/bench/values.h"

namespace lockstep::tools::bench {
namespace {

using engine::Clock;

// A turn is several consecutive rounds of one variant. After another variant's turn the caches hold
// the other's memory; the untimed rounds at the beginning of each turn correct that.
constexpr int kTurns = 4, kWarmUp = 2;
constexpr std::size_t kBytes = std::size_t(1) << 30;
constexpr std::size_t kFewRounds = 12, kMostRounds = 1000;

// Seconds for all rounds of a size. If a round takes long, as over a slow wire, there are fewer
// rounds, but at least one per turn.
constexpr double kSeconds = 4;

// Least bytes for which processor time is measured, because reading it is a system call.
constexpr std::size_t kProcessorsFrom = std::size_t(64) << 10;

// Bytes of one rank in one exchange.
constexpr std::size_t kMostGathered = std::size_t(512) << 10;

using Series = std::vector<std::vector<double>>;  // microseconds per variant

double process_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e6 + double(now.tv_nsec) * 1e-3;
}

// Returns the text of every process. All texts have the same length. Long texts are split into
// pieces that one exchange can carry.
std::vector<std::string> gathered(collectives::Bootstrap& bootstrap, const std::string& mine) {
  std::vector<std::string> all(std::size_t(bootstrap.processes()));
  for (std::size_t begin = 0; begin < mine.size(); begin += kMostGathered) {
    const auto piece =
        bootstrap.all_gather(mine.substr(begin, kMostGathered), "times of the benchmark");
    for (std::size_t process = 0; process < all.size(); ++process) all[process] += piece[process];
  }
  return all;
}

// Replaces this rank's times by those of the slowest rank, round by round. Processor times and
// wrong elements become the sums over all ranks; the wait for a processor becomes the worst.
void slowest(const Rank& rank, Series& series, Series& processors, collectives::ProcessorWait& wait,
             std::vector<std::size_t>& wrong) {
  std::string mine;
  const auto append = [&](const auto& value) {
    mine.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(wait);
  for (const std::size_t one : wrong) append(one);
  for (const Series* all : {&series, &processors})
    for (const auto& us : *all)
      for (const double one : us) append(one);
  for (auto& us : processors) std::fill(us.begin(), us.end(), 0.0);
  std::fill(wrong.begin(), wrong.end(), 0);
  for (const std::string& other : gathered(rank.job.bootstrap(), mine)) {
    const char* at = other.data();
    const auto take = [&](auto value) {
      std::memcpy(&value, at, sizeof value);
      at += sizeof value;
      return value;
    };
    wait = worse(wait, take(collectives::ProcessorWait{}));
    for (std::size_t& one : wrong) one += take(std::size_t{});
    for (auto& us : series)
      for (double& one : us) one = std::max(one, take(double{}));
    for (auto& us : processors)
      for (double& one : us) one += take(double{});
  }
}

// Returns the requested rounds, or as many as reduce a gigabyte, within limits. `one_of_each` runs
// an untimed round of every variant. The number is the same on all ranks.
int rounds(const Rank& rank, const Setting& setting, std::size_t bytes,
           const std::function<void()>& one_of_each) {
  if (setting.iterations > 0) return setting.iterations;
  const auto most = std::clamp(kBytes / std::max<std::size_t>(bytes, 1), kFewRounds, kMostRounds);
  std::size_t found = most;
  for (int attempt = 0; attempt < 2; ++attempt) {  // the first one touches its memory
    const auto begin = Clock::now();
    one_of_each();
    const std::chrono::duration<double> took = Clock::now() - begin;
    double slowest = 1e-9;
    for (const auto& other :
         rank.job.bootstrap().all_gather(fmt::format("{}", took.count()), "seconds of a round"))
      slowest = std::max(slowest, std::stod(other));
    found = std::size_t(std::clamp(kSeconds / slowest, double(kTurns), double(most)));
    if (found == most) break;
  }
  return int(found);
}

}  // namespace

Times times_of(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  const auto last = std::size_t(std::ceil(0.99 * double(us.size()))) - 1;
  return {int(us.size()), us[us.size() / 2], us.front(), us[last]};
}

void add(Wrong& sum, const Wrong& more) {
  if (more) sum = sum.value_or(0) + *more;
}

Wrong time_in_turns(const Rank& rank, Meeting& meeting, const Setting& setting, std::size_t count,
                    std::vector<Variant>& variants) {
  const Task& task = setting.task;
  const std::size_t width = engine::size_of(task.dtype);
  const int me = rank.job.rank();
  // Values must be small enough for sums over many ranks only if the collective reduces.
  Values values(task.dtype, task.op, task.mean, task.reduces() ? task.ranks() : 1);
  Series series(variants.size()), processors(variants.size());
  const bool looks = count * width >= kProcessorsFrom && meeting.of_processes();
  std::vector<std::size_t> wrong(variants.size());
  struct Round {
    double us, processors;
    std::size_t wrong;
  };
  const auto wrong_of = [&](const Variant& variant, int number) {
    const std::byte* const data = variant.result;
    if (task.reduces()) {
      const collectives::Range mine = result_range(task, count, me, variant.shares);
      const std::size_t at = variant.shares == Shares::kEqual ? 0 : mine.begin;
      return values.wrong(data + at * width, mine.begin, mine.size(), number);
    }
    std::size_t sum = 0;
    for (int from = 0; from < task.ranks(); ++from) {
      const collectives::Range its = input_range(task, count, from, variant.shares);
      sum += values.wrong_copies(data + its.begin * width, its.begin, its.size(), from, number);
    }
    return sum;
  };
  // Runs one round on this rank.
  const auto once = [&](Variant& variant, int number) {
    const collectives::Range input = input_range(task, count, me, variant.shares);
    values.write(variant.input + input.begin * width, input.begin, input.size(), me, number);
    meeting.meet();
    meeting.meet();
    const double before = looks ? process_us() : 0;
    const auto begin = Clock::now();
    variant.run();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    const double used = looks ? process_us() - before : 0;
    meeting.meet();
    return Round{took.count(), used, wrong_of(variant, number)};
  };
  int number = 0;
  collectives::ProcessorWaitClock clock;
  const int all = rounds(rank, setting, count * width, [&] {
    for (Variant& variant : variants) once(variant, number++);
  });
  const bool slow = setting.iterations == 0 && all == kTurns;
  const int warmup = setting.warmup.value_or(slow ? 0 : kWarmUp);
  for (int turn = 0; turn < kTurns; ++turn) {
    const int begin = all * turn / kTurns, end = all * (turn + 1) / kTurns;
    for (std::size_t v = 0; v < variants.size(); ++v) {
      for (int round = begin - warmup; round < end; ++round) {
        const auto [us, used, differ] = once(variants[v], number++);
        if (round < begin) continue;
        series[v].push_back(us);
        processors[v].push_back(used);
        const bool last = round + 1 == all;
        if (variants[v].exact &&
            (setting.check == Check::kAll || (setting.check == Check::kLast && last)))
          wrong[v] += differ;
      }
    }
  }
  collectives::ProcessorWait wait = clock.lap();
  slowest(rank, series, processors, wait, wrong);
  Wrong of_all;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    variants[v].times = times_of(std::move(series[v]));
    variants[v].times.processors = times_of(std::move(processors[v])).median;
    variants[v].times.wait = wait;
    variants[v].wrong = std::nullopt;
    if (setting.check != Check::kNone && variants[v].exact) variants[v].wrong = wrong[v];
    add(of_all, variants[v].wrong);
  }
  return of_all;
}

}  // namespace lockstep::tools::bench
