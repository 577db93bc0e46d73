// SPDX-License-Identifier: MIT
#include "tools/bench/regret.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/job/rank_link.h"
#include "engine/base/error.h"
#include "tools/bench/fields.h"
#include "tools/bench/other_work.h"

namespace lockstep::tools::bench {
namespace {

// Returns, for each name, the index of the first name with the same plan.
std::vector<std::size_t> first_alike(const Task& task, const std::vector<std::string>& names,
                                     std::size_t count) {
  std::vector<collectives::Plan> plans;
  std::vector<std::size_t> first;
  for (const std::string& name : names) {
    plans.push_back(in_place_plan(task, name, count));
    std::size_t alike = 0;
    while (plans[alike].lanes != plans.back().lanes ||
           plans[alike].alternate != plans.back().alternate)
      ++alike;
    first.push_back(alike);
  }
  return first;
}

// Times these algorithms interleaved, in place, over the same memory.
std::vector<Times> contest(const Rank& rank, Meeting& meeting, const Setting& setting,
                           const std::vector<std::string>& names, std::size_t count, Wrong& wrong) {
  const Work w = contest_work(setting.task, names, count);
  const std::size_t width = engine::size_of(setting.task.dtype);
  collectives::RankLink link(rank.job, rank.ops, w.plan, w.elements * width, w.scratch * width,
                             "benchmark");
  meeting.prepare(title(w.plan[0].plan));
  std::vector<Variant> variants;
  for (const int stage : w.in_place)
    variants.push_back({link.data(), link.data(), true, [&link, stage] {
                          link.executor().start(stage, nullptr);
                          link.executor().wait(stage);
                        }});
  add(wrong, time_in_turns(rank, meeting, setting, count, variants));
  std::vector<Times> times;
  for (const Variant& variant : variants) times.push_back(variant.times);
  return times;
}

// Returns the time of this algorithm, or nothing if it did not take part.
std::optional<double> time_of(const Regret& r, const std::string& name) {
  for (const auto& [one, us] : r.us)
    if (one == name) return us;
  return std::nullopt;
}

// Returns the fields of a line, except the times of all algorithms.
Fields regret_fields(const Regret& r) {
  Fields all{{"bytes", r.bytes},
             {"count", r.count},
             {"algorithm", r.choice.algorithm},
             {"predicted_us", number_or_null(r.choice.predicted_us)},
             {"choice_us", r.choice_us},
             {"best", r.best},
             {"best_us", r.best_us},
             {"regret", r.ratio()},
             {"wrong", wrong_json(r.wrong)},
             {"disturbed", r.wait.disturbed()}};
  add_task(all, r.task);
  all.emplace_back("reason", r.choice.reason);  // last, since it has commas
  return all;
}

}  // namespace

Regret regret(const Rank& rank, Meeting& meeting, const Setting& setting, const Choice& choice,
              const std::vector<std::string>& among, std::size_t count) {
  Regret found;
  found.task = setting.task;
  found.count = count, found.bytes = count * engine::size_of(setting.task.dtype);
  found.choice = choice;
  const std::vector<std::size_t> first = first_alike(setting.task, among, count);
  std::vector<std::string> different;
  std::vector<std::size_t> place(among.size());  // indices in `different`
  for (std::size_t i = 0; i < among.size(); ++i) {
    place[i] = first[i] == i ? different.size() : place[first[i]];
    if (first[i] == i) different.push_back(among[i]);
  }
  const auto first_times = contest(rank, meeting, setting, different, count, found.wrong);
  for (std::size_t i = 0; i < among.size(); ++i)
    found.us.push_back({among[i], first_times[place[i]].median});

  const auto named = std::find(among.begin(), among.end(), choice.algorithm);
  engine::invariant(named != among.end(), "a choice that was not among the algorithms");
  const std::size_t chosen = place[std::size_t(named - among.begin())];
  const auto fastest =
      std::min_element(first_times.begin(), first_times.end(),
                       [](const Times& a, const Times& b) { return a.median < b.median; });
  const auto best = std::size_t(fastest - first_times.begin());
  found.best = best == chosen ? choice.algorithm : different[best];
  std::vector<std::string> two{different[chosen]};
  if (best != chosen) two.push_back(different[best]);
  const auto again = contest(rank, meeting, setting, two, count, found.wrong);
  found.wait = worse(first_times.front().wait, again.front().wait);
  found.choice_us = again.front().median, found.best_us = again.back().median;
  if (found.choice_us < found.best_us)
    found.best = choice.algorithm, found.best_us = found.choice_us;
  return found;
}

std::string heading(const std::vector<std::string>& columns, Form form) {
  if (form == Form::kJson) return {};
  if (form == Form::kCsv) {
    Fields all = regret_fields({});
    for (const std::string& name : columns) all.emplace_back(name + "_us", nullptr);
    return csv_heading(all);
  }
  std::string text =
      fmt::format("{:>11} {:<20} {:>9} {:>10}   {:<20} {:>10} {:>7} {:>6} ", "bytes", "choice",
                  "predicted", "choice us", "best", "best us", "regret", "wrong");
  for (const std::string& name : columns) text += fmt::format(" {:>20}", name);
  return text;
}

std::string to_text(const Regret& r, const std::vector<std::string>& columns, Form form) {
  if (form != Form::kTable) {
    Fields all = regret_fields(r);
    if (form == Form::kJson) {
      nlohmann::json us;
      for (const auto& [name, one] : r.us) us[name] = one;
      all.emplace_back("us", std::move(us));
      return json_line(all);
    }
    for (const std::string& name : columns) {
      all.emplace_back(name + "_us", number_or_null(time_of(r, name)));
    }
    return csv_line(all);
  }
  std::string text = fmt::format("{:>11} {:<18} {} {:>9} {:>10}   {:<20} {:>10} {:>7.2f} {:>6} ",
                                 r.bytes, r.choice.algorithm, r.wait.disturbed() ? "!" : " ",
                                 us_cell(r.choice.predicted_us), us_cell(r.choice_us), r.best,
                                 us_cell(r.best_us), r.ratio(), wrong_cell(r.wrong, form));
  for (const std::string& name : columns) {
    const auto us = time_of(r, name);
    text += fmt::format(" {:>20}", us_cell(us));
  }
  return text;
}

std::string summary(const std::vector<Regret>& regrets) {
  std::size_t tenth = 0, quarter = 0;
  double worst = 1;
  for (const Regret& r : regrets) {
    tenth += r.ratio() <= 1.1, quarter += r.ratio() <= 1.25;
    worst = std::max(worst, r.ratio());
  }
  return fmt::format(
      "# the choice is within 10 % of the best at {} of {} sizes, within 25 % at {}; {:.2f} times "
      "it "
      "at worst",
      tenth, regrets.size(), quarter, worst);
}

}  // namespace lockstep::tools::bench
