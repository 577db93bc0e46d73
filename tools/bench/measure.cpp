// SPDX-License-Identifier: MIT
#include "tools/bench/measure.h"

#include <fmt/core.h>

#include <algorithm>

#include "collectives/job/rank_link.h"
#include "collectives/mpi/mpi_collectives.h"
#include "collectives/mpi/watchdog.h"
#include "engine/device/buffer.h"

namespace lockstep::tools::bench {
namespace {

namespace mpi = collectives::mpi;

std::size_t elements_of_mpi(const Task& task, std::size_t count) {
  return std::max(count, equal_share(task, count) * std::size_t(task.ranks()));
}

void run_mpi(const Task& task, std::byte* data, std::size_t count) {
  switch (task.collective) {
    case Collective::kAllReduce:
      return mpi::all_reduce(data, count, task.dtype, task.op);
    case Collective::kReduceScatter:
      return mpi::reduce_scatter(data, equal_share(task, count), task.dtype, task.op);
    case Collective::kAllGather:
      return mpi::all_gather(data, equal_share(task, count), task.dtype);
    case Collective::kBroadcast:
      return mpi::broadcast(data, count, task.dtype);
  }
}

}  // namespace

Measured measure(const Rank& rank, Meeting& meeting, const Setting& setting,
                 const std::string& algorithm, std::size_t count) {
  const Task& task = setting.task;
  const std::size_t width = engine::size_of(task.dtype);
  const Work w = work(task, algorithm, count);
  collectives::RankLink link(rank.job, rank.ops, w.plan, w.elements * width, w.scratch * width,
                             "benchmark");
  meeting.prepare(title(w.plan[0].plan));
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
    of_mpi = engine::Buffer(elements_of_mpi(task, count) * width);
    variants.push_back({of_mpi.data(), of_mpi.data(), true,
                        [&] { run_mpi(task, of_mpi.data(), count); }, Shares::kEqual});
    dog.emplace(fmt::format("{} of {} bytes, many times", mpi_name(task.collective), count * width),
                10 * rank.job.deadline());
  }

  Measured measured;
  time_in_turns(rank, meeting, setting, count, variants);
  dog.reset();
  add(measured.wrong, variants[0].wrong);
  add(measured.wrong, variants[1].wrong);
  measured.in_place = variants[0].times;
  measured.iterations = measured.in_place.rounds;
  measured.out_of_place = variants[1].times;
  measured.roofline_us = wire_us(task, count, setting.wire);
  if (!w.roofline.empty()) measured.roofline_us = variants[2].times.median;
  if (setting.mpi) {
    measured.rival = variants.back().times;
    measured.rival_wrong = variants.back().wrong;
  }
  return measured;
}

}  // namespace lockstep::tools::bench
