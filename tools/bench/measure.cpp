// SPDX-License-Identifier: MIT
#include "tools/bench/measure.h"

#include <fmt/format.h>

#include "collectives/mpi/mpi_all_reduce.h"
#include "collectives/mpi/watchdog.h"
#include "engine/device/buffer.h"

namespace lockstep::tools::bench {

Measured measure(const strategies::Ranks& ranks, Meeting& meeting, const Setting& setting,
                 const std::string& algorithm, std::size_t count) {
  const Task& task = setting.task;
  const std::size_t width = engine::size_of(task.dtype);
  const Work w = work(task, algorithm, count);
  strategies::RankLink link(ranks, w.plan, w.elements * width, w.scratch * width, "benchmark");
  const Prepared prepared(meeting, title(w.plan[0].plan), link);
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

  Measured measured;
  measured.wrong = time_in_turns(ranks, meeting, setting, count, variants);
  dog.reset();
  measured.in_place = variants[0].times;
  measured.iterations = measured.in_place.rounds;
  measured.out_of_place = variants[1].times;
  if (!w.roofline.empty()) measured.roofline_us = variants[2].times.median;
  if (setting.mpi) measured.mpi = variants.back().times;
  return measured;
}

}  // namespace lockstep::tools::bench
