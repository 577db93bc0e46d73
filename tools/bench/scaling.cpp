// SPDX-License-Identifier: MIT
#include "tools/bench/scaling.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/algorithms/registry.h"
#include "collectives/job/rank_link.h"
#include "tools/bench/fields.h"

namespace lockstep::tools::bench {
namespace {

using engine::Clock;
using std::chrono::duration;

constexpr double kForward = 1.0 / 3;  // fraction of a step's computing

// Holds the sums of a step as plans, and the seconds that the links need for each.
struct Sums {
  Work work;
  std::vector<double> seconds;
};

Sums sums_of(const Task& task, const ScalingTask& scaling,
             const std::optional<collectives::Choices>& planned) {
  Sums sums;
  for (const Gradient& bucket : scaling.buckets) {
    const Choice choice = choices(task, "auto", bucket.elements, planned).front();
    add_bucket(sums.work, task, choice.algorithm,
               scaling.fake_links ? engine::kBlock : bucket.elements);
    const bool links = scaling.fake_links && choice.predicted_us;
    sums.seconds.push_back(links ? *choice.predicted_us * 1e-6 : 0);
  }
  return sums;
}

// Runs one step on this rank. `compute`: the seconds of its computing.
class Step {
 public:
  Step(const ScalingTask& task, const Sums& sums, collectives::Executor& executor)
      : task_(task), sums_(sums), executor_(executor) {}

  void run(double compute) {
    const auto begin = Clock::now();
    const auto at = [&](double seconds) {
      return begin + std::chrono::duration_cast<Clock::duration>(duration<double>(seconds));
    };
    auto carried = begin;  // when the links are free again
    for (std::size_t bucket = 0; bucket < sums_.seconds.size(); ++bucket) {
      const double ready = kForward + (1 - kForward) * task_.buckets[bucket].ready;
      compute_until(at(compute * ready));
      executor_.start(sums_.work.in_place[bucket], nullptr);
      carried = std::max(carried, Clock::now()) + std::chrono::duration_cast<Clock::duration>(
                                                      duration<double>(sums_.seconds[bucket]));
    }
    compute_until(at(compute));
    for (const int stage : sums_.work.in_place) executor_.wait(stage);
    compute_until(carried);
  }

 private:
  void compute_until(Clock::time_point end) {
    for (auto now = Clock::now(); now < end; now = Clock::now())
      executor_.sleep(std::chrono::ceil<std::chrono::microseconds>(end - now));
  }
  const ScalingTask& task_;
  const Sums& sums_;
  collectives::Executor& executor_;
};

Fields scaling_fields(const Scaling& s, const Scaling& alone) {
  Fields all{{"weak_step_ms", s.weak.step * 1e3},
             {"weak_examples_per_second", s.weak.examples_per_second},
             {"weak_percent", 100 * s.weak.efficiency(alone.weak)},
             {"strong_step_ms", s.strong.step * 1e3},
             {"strong_examples_per_second", s.strong.examples_per_second},
             {"strong_percent", 100 * s.strong.efficiency(alone.strong)},
             {"links_ms", s.links * 1e3},
             {"wrong", wrong_json(s.wrong)}};
  add_task(all, s.task);
  return all;
}

}  // namespace

Scaling scaling(const Rank& rank, Meeting& meeting, const Setting& setting, const ScalingTask& task,
                const std::optional<collectives::Choices>& planned) {
  const int n = setting.task.ranks();
  const std::size_t width = engine::size_of(setting.task.dtype);
  const Sums sums = sums_of(setting.task, task, planned);
  collectives::RankLink link(rank.job, rank.ops, sums.work.plan, sums.work.elements * width,
                             sums.work.scratch * width, "scaling");
  meeting.prepare("a step");
  Step step(task, sums, link.executor());
  std::byte* const data = link.data();
  std::vector<Variant> variants{{data, data, true, [&] { step.run(task.compute); }},
                                {data, data, true, [&] { step.run(task.compute / n); }}};
  Scaling found;
  found.task = setting.task;
  found.wrong = time_in_turns(rank, meeting, setting, sums.work.elements, variants);
  for (const double seconds : sums.seconds) found.links += seconds;
  const auto scaled = [&](const Times& times, double images) {
    return Scaled{n, times.median * 1e-6, images / (times.median * 1e-6)};
  };
  found.weak = scaled(variants[0].times, double(task.batch) * n);
  found.strong = scaled(variants[1].times, task.batch);
  return found;
}

std::string scaling_heading(Form form) {
  if (form == Form::kJson) return {};
  if (form == Form::kCsv) return csv_heading(scaling_fields({}, {}));
  return fmt::format("{:>5} {:>12} {:>10} {:>7} {:>14} {:>10} {:>9} {:>9} {:>6}", "ranks",
                     "weak: step ms", "images/s", "%", "strong: step ms", "images/s", "%",
                     "links ms", "wrong");
}

std::string to_text(const Scaling& s, const Scaling& alone, Form form) {
  if (form == Form::kJson) return json_line(scaling_fields(s, alone));
  if (form == Form::kCsv) return csv_line(scaling_fields(s, alone));
  return fmt::format(
      "{:>5} {:>13.2f} {:>10.1f} {:>7.1f} {:>15.2f} {:>10.1f} {:>9.1f} {:>9.2f} {:>6}",
      s.weak.ranks, s.weak.step * 1e3, s.weak.examples_per_second,
      100 * s.weak.efficiency(alone.weak), s.strong.step * 1e3, s.strong.examples_per_second,
      100 * s.strong.efficiency(alone.strong), s.links * 1e3, wrong_cell(s.wrong, form));
}

}  // namespace lockstep::tools::bench
