// SPDX-License-Identifier: MIT
#include "tools/bench/scaling_runs.h"

#include <fmt/core.h>

#include <cstdio>
#include <numeric>
#include <utility>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/job/rank_processors.h"
#include "strategies/synchronous/step_design.h"
#include "tools/bench/rank_threads.h"
#include "tools/bench/room.h"
#include "tools/standard_streams.h"
#include "tools/topology_choice.h"

namespace lockstep::tools::bench {
namespace {

constexpr int kMostThreads = 64;
constexpr int kSteps = 8;  // timed steps by default

void say(const std::string& line) {
  if (!line.empty()) print(line + "\n");
}

}  // namespace

ScalingRuns::ScalingRuns(const ScalingFlags& flags, std::size_t bytes, const Setting& setting,
                         Form form, Costs costs)
    : setting_(setting), form_(form), costs_(std::move(costs)), links_name_(flags.links) {
  const std::size_t width = engine::size_of(setting.task.dtype);
  const auto gradients =
      bytes == 0 ? resnet50_gradients() : equal_gradients(std::max<std::size_t>(1, bytes / width));
  task_.buckets = in_buckets(gradients, strategies::kBucketBytes / width);
  task_.compute = flags.compute_ms * 1e-3;
  task_.batch = flags.batch;
  if (setting_.iterations == 0) setting_.iterations = kSteps;
  setting_.warmup = 0;  // steps are long
  if (flags.links.empty()) return;
  task_.fake_links = true;
  links_ = described_topology(flags.links);
  engine::require(ranks_of_links() <= kMostThreads,
                  "--links {} has {} ranks, and each is a thread here: at most {}", flags.links,
                  ranks_of_links(), kMostThreads);
}

bool ScalingRuns::threads(int count, strategies::Session& session,
                          std::chrono::milliseconds deadline) {
  engine::require(!links_ || count <= ranks_of_links(), "--links {} has {} ranks, not {}",
                  links_name_, ranks_of_links(), count);
  if (!links_)
    on_threads(std::vector<int>(std::size_t(count), 0), session, deadline,
               [&](const Rank& rank) { require_gradients(rank, true); });
  tell_task();
  bool right = true;
  for (const int n : doubled(count)) {
    const std::vector<int> host =
        links_ ? links_->first_ranks(n).host_of_rank() : std::vector<int>(std::size_t(n), 0);
    on_threads(host, session, deadline, [&](const Rank& rank) {
      const Scaling found = run(rank);
      if (rank.job.rank() == 0) right = tell(found) && right;
    });
  }
  tell_end();
  return right;
}

// Runs every rank alone, at the same time. Their steps take equally long, so that no rank waits
// long for another before all of them begin.
bool ScalingRuns::processes(const Rank& rank) {
  const bool first = rank.job.rank() == 0;
  require_gradients(rank, false);
  if (first) tell_task();
  const auto single = collectives::single_process();
  collectives::Job job_of_one(collectives::rank_of_each_process(*single),
                              {.deadline = rank.job.deadline()});
  const Scaling alone = run({job_of_one, rank.ops});
  bool right = first ? tell(alone) : alone.wrong.value_or(0) == 0;
  const Scaling found = run(rank);
  if (!first) return right && found.wrong.value_or(0) == 0;
  right = tell(found) && right;
  tell_end();
  return right;
}

// Runs one number of ranks. It has choices of its own, as a job of that size would.
Scaling ScalingRuns::run(const Rank& rank) {
  Setting setting = setting_;
  setting.task.host = rank.job.ranks().host;
  std::optional<collectives::Choices> choices;
  if (rank.job.size() > 1) {
    const collectives::Topology costs =
        links_ ? links_->first_ranks(rank.job.size()) : costs_(rank);
    std::vector<std::size_t> counts{task_.buckets.back().elements};  // the last bucket is smaller
    if (task_.buckets.front().elements > counts.back())
      counts.push_back(task_.buckets.front().elements);
    choices = planned(setting.task, costs, counts);
  }
  Meeting meeting(rank);
  return scaling(rank, meeting, setting, task_, choices);
}

std::size_t ScalingRuns::elements() const {
  return std::accumulate(task_.buckets.begin(), task_.buckets.end(), std::size_t(0),
                         [](std::size_t sum, const Gradient& g) { return sum + g.elements; });
}

// Throws if the gradients do not fit in memory. The scratch of the algorithms is negligible.
void ScalingRuns::require_gradients(const Rank& rank, bool threads) const {
  require_room(rank, threads, elements() * engine::size_of(setting_.task.dtype),
               fmt::format("--scaling with gradients of {} numbers", elements()));
}

void ScalingRuns::tell_task() const {
  if (form_ == Form::kTable) {
    say(fmt::format(
        "# faked: {:g} ms of computing for {} images on one rank; gradients of {} {} in "
        "{} buckets{}",
        task_.compute * 1e3, task_.batch, elements(), engine::name(setting_.task.dtype),
        task_.buckets.size(), links_ ? ", carried by the links of " + links_name_ : ""));
  }
  say(scaling_heading(form_));
}

bool ScalingRuns::tell(const Scaling& scaling) {
  if (!alone_) alone_ = scaling;
  say(to_text(scaling, *alone_, form_));
  return scaling.wrong.value_or(0) == 0;
}

void ScalingRuns::tell_end() const {
  if (form_ != Form::kTable) return;
  say(
      fmt::format("# %: images/s of n ranks / (n x images/s of one); weak: {} images on each rank; "
                  "strong: {} on all together",
                  task_.batch, task_.batch));
}

}  // namespace lockstep::tools::bench
