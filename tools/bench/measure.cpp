// SPDX-License-Identifier: MIT
#include "tools/bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "collectives/mpi/mpi_all_reduce.h"
#include "collectives/mpi/watchdog.h"
#include "engine/base/error.h"
#include "engine/device/buffer.h"
#include "tools/bench/values.h"

namespace lockstep::tools::bench {
namespace {

using engine::Clock;

// Variants take turns of several rounds: after a turn of another the caches hold its memory, which
// the untimed rounds at the beginning of each turn put right.
constexpr int kTurns = 4;
// By default so many rounds that a gigabyte is reduced, but not very few and not very many.
constexpr std::size_t kBytes = std::size_t(1) << 30;
constexpr std::size_t kLeastRounds = 12, kMostRounds = 1000;

int rounds(const Setting& setting, std::size_t bytes) {
  if (setting.iterations > 0) return setting.iterations;
  return int(std::clamp(kBytes / std::max<std::size_t>(bytes, 1), kLeastRounds, kMostRounds));
}

// One thing that is timed: where its input and result lie, and what runs.
struct Variant {
  std::byte* input = nullptr;
  std::byte* result = nullptr;
  bool exact = true;  // its results are to be right
  std::function<void()> run = {};
  std::vector<double> us = {};  // of this rank
};

// Replaces my times by the slowest rank's, round by round, and adds up what was wrong.
std::size_t slowest(const strategies::Ranks& ranks, std::vector<Variant>& variants,
                    std::size_t wrong) {
  std::string mine;
  const auto append = [&](const auto& value) {
    mine.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  append(wrong);
  for (const Variant& variant : variants)
    for (const double us : variant.us) append(us);
  std::size_t sum = 0;
  for (const std::string& other : ranks.bootstrap.all_gather(mine, "times of the benchmark")) {
    const char* at = other.data();
    const auto take = [&](auto value) {
      std::memcpy(&value, at, sizeof value);
      at += sizeof value;
      return value;
    };
    sum += take(std::size_t{});
    for (Variant& variant : variants)
      for (double& us : variant.us) us = std::max(us, take(double{}));
  }
  return sum;
}

Times times(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  const auto last = std::size_t(std::ceil(0.99 * double(us.size()))) - 1;
  return {us[us.size() / 2], us.front(), us[last]};
}

}  // namespace

Measured measure(const strategies::Ranks& ranks, Meeting& meeting, const Setting& setting,
                 const std::string& algorithm, std::size_t count) {
  const Task& task = setting.task;
  const std::size_t width = engine::size_of(task.dtype);
  const Work w = work(task, algorithm, count);
  strategies::RankLink link(ranks, w.plan, w.elements * width, w.scratch * width, "benchmark");
  const auto run = [&link](const std::vector<int>& stages) {
    for (const int stage : stages) link.executor().start(stage, nullptr);
    link.executor().wait(stages.back());
  };
  std::vector<Variant> variants;
  std::byte* const data = link.data();
  variants.push_back({data, data, true, [&] { run(w.in_place); }});
  variants.push_back({data, data + w.output * width, true, [&] { run(w.out_of_place); }});
  if (!w.roofline.empty()) variants.push_back({data, data, false, [&] { run(w.roofline); }});
  engine::Buffer of_mpi;
  std::optional<collectives::mpi::Watchdog> dog;
  if (setting.mpi) {
    of_mpi = engine::Buffer(count * width);
    variants.push_back({of_mpi.data(), of_mpi.data(), false, [&] {
                          collectives::mpi::all_reduce(of_mpi.data(), count, task.dtype, task.op);
                        }});
    dog.emplace(fmt::format("MPI_Allreduce of {} bytes, many times", count * width),
                10 * ranks.deadline);
  }

  const int me = ranks.rank();
  const collectives::Range result = result_range(task, count, me);
  Values values(task.dtype, task.op, task.mean, task.ranks());
  Measured measured;
  measured.iterations = rounds(setting, count * width);
  std::size_t wrong = 0;
  // One round: seconds and wrong elements of this rank.
  const auto once = [&](Variant& variant, int number) {
    values.write(variant.input, 0, count, me, number);
    meeting.meet();
    meeting.meet();
    const auto begin = Clock::now();
    variant.run();
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    meeting.meet();
    const std::size_t differ =
        values.wrong(variant.result + result.begin * width, result.begin, result.size(), number);
    return std::pair(took.count(), differ);
  };
  int number = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const int begin = measured.iterations * turn / kTurns;
    const int end = measured.iterations * (turn + 1) / kTurns;
    for (Variant& variant : variants) {
      for (int round = begin - setting.warmup; round < end; ++round) {
        const auto [us, differ] = once(variant, number++);
        if (round < begin) continue;
        variant.us.push_back(us);
        const bool last = round + 1 == measured.iterations;
        if (variant.exact &&
            (setting.check == Check::kAll || (setting.check == Check::kLast && last)))
          wrong += differ;
      }
    }
  }
  dog.reset();
  measured.wrong = slowest(ranks, variants, wrong);
  measured.in_place = times(variants[0].us);
  measured.out_of_place = times(variants[1].us);
  if (!w.roofline.empty()) measured.roofline_us = times(variants[2].us).median;
  if (setting.mpi) measured.mpi_us = times(variants.back().us).median;
  return measured;
}

}  // namespace lockstep::tools::bench
