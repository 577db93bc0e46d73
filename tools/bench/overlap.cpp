// SPDX-License-Identifier: MIT
#include "tools/bench/overlap.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "collectives/job/rank_link.h"
#include "tools/bench/fields.h"
#include "tools/bench/other_work.h"

namespace lockstep::tools::bench {
namespace {

using engine::Clock;

// The backward pass consists of units of some hundred nanoseconds, over memory that stays in the L1
// cache. After kBlock units, some 50 us, the thread polls the buckets. Between hosts a poll is a
// system call, and more of them take longer than they hide.
constexpr int kBlock = 512;
constexpr int kTrial = 2000;

class Backward {
 public:
  void compute(int units) {
    for (int unit = 0; unit < units; ++unit)
      for (float& number : numbers_) number = number * 0.999f + 0.001f;
    kept_ = numbers_[0];
  }

 private:
  std::array<float, 1024> numbers_{};
  volatile float kept_ = 0;  // keeps the work from being optimized away
};

// Returns how many units take `us` microseconds while all ranks compute; the same number on all
// ranks.
int units_for(double us, const Rank& rank, Meeting& meeting, Backward& backward) {
  double slowest = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {  // the first one wakes the processor
    meeting.meet();
    const auto begin = Clock::now();
    backward.compute(kTrial);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    slowest = 0;
    for (const auto& other : rank.job.bootstrap().all_gather(fmt::format("{}", took.count()),
                                                             "times of a backward pass"))
      slowest = std::max(slowest, std::stod(other));
  }
  return std::max(kBuckets, int(us / slowest * kTrial));
}

Fields overlap_fields(const Overlap& o) {
  Fields all{{"bytes", o.bytes},
             {"count", o.count},
             {"algorithm", o.choice.algorithm},
             {"compute_us", o.compute_us},
             {"alone_us", o.alone_us},
             {"together_us", o.together_us},
             {"hidden_percent", number_or_null(o.hidden_percent())},
             {"wrong", wrong_json(o.wrong)},
             {"chosen", o.choice.chosen},
             {"disturbed", o.wait.disturbed()}};
  add_task(all, o.task);
  all.emplace_back("reason", o.choice.reason);  // last, since it has commas
  return all;
}

}  // namespace

Overlap overlap(const Rank& rank, Meeting& meeting, const Setting& setting, const Choice& choice,
                std::size_t count) {
  Overlap found;
  found.task = setting.task;
  found.count = count, found.bytes = count * engine::size_of(setting.task.dtype);
  found.choice = choice;
  const Work w = bucket_work(setting.task, choice.algorithm, count, kBuckets);
  const std::size_t width = engine::size_of(setting.task.dtype);
  collectives::RankLink link(rank.job, rank.ops, w.plan, w.elements * width, w.scratch * width,
                             "benchmark");
  meeting.prepare(title(w.plan[0].plan));
  const auto start = [&](int stage) { link.executor().start(stage, nullptr); };
  const auto wait = [&] {
    for (const int stage : w.in_place) link.executor().wait(stage);
  };
  const auto alone = [&] {
    for (const int stage : w.in_place) start(stage);
    wait();
  };
  Backward backward;
  std::byte* const data = link.data();
  std::vector<Variant> first{{data, data, true, alone}};
  found.wrong = time_in_turns(rank, meeting, setting, count, first);
  const int units = units_for(first[0].times.median, rank, meeting, backward);
  const int parts = int(w.in_place.size());
  const auto both = [&] {
    for (int part = 0; part < parts; ++part) {
      const int begin = int(std::int64_t(units) * part / parts);
      const int end = int(std::int64_t(units) * (part + 1) / parts);
      for (int unit = begin; unit < end; unit += kBlock) {
        backward.compute(std::min(kBlock, end - unit));
        link.executor().progress();
      }
      start(w.in_place[std::size_t(part)]);
    }
    wait();
  };
  std::vector<Variant> variants{{data, data, false, [&] { backward.compute(units); }},
                                {data, data, true, alone},
                                {data, data, true, both}};
  add(found.wrong, time_in_turns(rank, meeting, setting, count, variants));
  found.compute_us = variants[0].times.median;
  found.alone_us = variants[1].times.median;
  found.together_us = variants[2].times.median;
  found.wait = worse(first[0].times.wait, variants[2].times.wait);
  return found;
}

std::string overlap_heading(Form form) {
  if (form == Form::kJson) return {};
  if (form == Form::kCsv) return csv_heading(overlap_fields({}));
  return fmt::format("{:>11} {:>10} {:<20}   {:>11} {:>11} {:>11} {:>9} {:>6}", "bytes", "count",
                     "algorithm", "compute us", "alone us", "together us", "hidden %", "wrong");
}

std::string to_text(const Overlap& o, Form form) {
  if (form == Form::kJson) return json_line(overlap_fields(o));
  if (form == Form::kCsv) return csv_line(overlap_fields(o));
  return fmt::format("{:>11} {:>10} {:<20} {}{:>11.1f} {:>11.1f} {:>11.1f} {:>9} {:>6}", o.bytes,
                     o.count, o.choice.algorithm, marks(o.choice, o.wait), o.compute_us, o.alone_us,
                     o.together_us, cell(o.hidden_percent(), 0), wrong_cell(o.wrong, form));
}

}  // namespace lockstep::tools::bench
