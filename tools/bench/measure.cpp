// SPDX-License-Identifier: MIT
#include "tools/bench/measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "collectives/job/rank_link.h"
#include "collectives/mpi/mpi_collectives.h"
#include "collectives/mpi/watchdog.h"
#include "engine/base/quantity.h"
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

void copy_elements(const std::byte* from, std::byte* to, collectives::Range elements,
                   std::size_t width) {
  std::memcpy(to + elements.begin * width, from + elements.begin * width, elements.size() * width);
}

}  // namespace

std::vector<Measured> measure(const Rank& rank, Meeting& meeting, const Setting& setting,
                              const std::vector<std::string>& algorithms, std::size_t count) {
  const Task& task = setting.task;
  const std::size_t width = engine::size_of(task.dtype);
  std::vector<Work> works;
  collectives::StepPlan plan;
  std::size_t elements = 0, scratch = 0;
  for (const std::string& algorithm : algorithms) {
    Work& w = works.emplace_back(work(task, algorithm, count, scratch, int(plan.size())));
    elements = std::max(elements, w.elements);
    scratch += w.scratch;
    std::ranges::move(w.plan, std::back_inserter(plan));
  }
  collectives::RankLink link(rank.job, rank.ops, plan, elements * width, scratch * width,
                             "benchmark");
  meeting.prepare(
      fmt::format("{} of {}", name(task.collective), engine::bytes_text(double(count * width))));
  const auto run = [&link](const std::vector<int>& stages) {
    for (const int stage : stages) link.executor().start(stage, nullptr);
    link.executor().wait(stages.back());
  };
  // Two of each algorithm, then the roofline if there is one, then with MPI one more of each
  // algorithm, and MPI.
  std::vector<Variant> variants;
  std::byte* const data = link.data();
  const int me = rank.job.rank();
  for (const Work& w : works) {
    variants.push_back({data, data, true, [&] { run(w.in_place); }});
    variants.push_back({data, data + w.output * width, true, [&] { run(w.out_of_place); }});
  }
  const std::size_t roofline = variants.size();
  const bool measured_roofline = !works[0].roofline.empty();
  if (measured_roofline) variants.push_back({data, data, false, [&] { run(works[0].roofline); }});
  const std::size_t copied = variants.size();  // the first of these, if MPI is timed
  engine::Buffer own(setting.mpi ? count * width : 0);
  if (setting.mpi)
    for (const Work& w : works)
      variants.push_back({own.data(), own.data(), true, [&] {
                            copy_elements(own.data(), data, input_range(task, count, me), width);
                            run(w.in_place);
                            copy_elements(data, own.data(), result_range(task, count, me), width);
                          }});
  engine::Buffer of_mpi;
  std::optional<collectives::mpi::Watchdog> dog;
  if (setting.mpi) {
    of_mpi = engine::Buffer(elements_of_mpi(task, count) * width);
    variants.push_back({of_mpi.data(), of_mpi.data(), true,
                        [&] { run_mpi(task, of_mpi.data(), count); }, Shares::kEqual});
    dog.emplace(fmt::format("{} of {} bytes, many times", mpi_name(task.collective), count * width),
                3 * int(variants.size()) * rank.job.deadline());
  }
  time_in_turns(rank, meeting, setting, count, variants);
  dog.reset();

  std::vector<Measured> all(works.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    Measured& measured = all[i];
    const Variant &in = variants[2 * i], &out = variants[2 * i + 1];
    add(measured.wrong, in.wrong);
    add(measured.wrong, out.wrong);
    measured.in_place = in.times;
    measured.iterations = measured.in_place.rounds;
    measured.out_of_place = out.times;
    measured.roofline_us =
        measured_roofline ? variants[roofline].times.median : wire_us(task, count, setting.wire);
    if (!setting.mpi) continue;
    measured.copied = variants[copied + i].times;
    add(measured.wrong, variants[copied + i].wrong);
    measured.rival = variants.back().times;
    measured.rival_wrong = variants.back().wrong;
  }
  return all;
}

}  // namespace lockstep::tools::bench
