// SPDX-License-Identifier: MIT
#include "collectives/job/probe_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>

#include "collectives/bootstrap/outcome.h"
#include "collectives/job/host_connections.h"
#include "collectives/memory/mapped_memory.h"
#include "collectives/run/executor.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

using engine::Clock;

constexpr std::size_t kLine = 64;
// Most teams over one control block, more than a calibration has groups; and most plans per team.
constexpr std::size_t kTeams = 40, kPlans = 8;
// Largest number of repetitions that all count. With more, one run comes first that does not count.
constexpr int kFew = 3;
const std::string kWhat = "calibration: ";
constexpr std::chrono::milliseconds kListens{20};  // between two polls

std::size_t pages_of(std::size_t elements) {
  return whole_pages(std::max<std::size_t>(elements, 1) * sizeof(float));
}

// Behind the teams' blocks, each team has a line of flags: what the first rank of the host decides
// in each round.
static_assert(ProbeGroup::kTurns * sizeof(std::atomic<std::uint32_t>) <= kLine);

std::size_t control_bytes(std::size_t local) {
  return (Team::control_bytes(local, kPlans) + kLine - 1) / kLine * kLine;
}

template <class Size>
std::size_t most(const std::vector<ProbeGroup>& groups, const Size& size) {
  std::size_t most = 0;
  for (const ProbeGroup& group : groups) most = std::max(most, group.*size);
  return most;
}

StepPlan all_plans(const std::vector<ProbeGroup>& groups) {
  StepPlan all;
  for (const ProbeGroup& group : groups)
    all.insert(all.end(), group.step.begin(), group.step.end());
  return all;
}

// Returns the options of a plan's own executor, if the plan compares kinds of access.
std::optional<ExecutorOptions> own_options(Probe::Kind kind, ExecutorOptions options) {
  constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
  switch (kind) {
    case Probe::Kind::kKept:
      options.stream_from = kNever;
      return options;
    case Probe::Kind::kStreamed:
      options.stream_from = 0;
      return options;
    case Probe::Kind::kWriteAhead:
    case Probe::Kind::kReadAhead:
      options.stream_from = kNever;
      options.read_ahead = kind == Probe::Kind::kReadAhead;
      return options;
    default:
      return std::nullopt;
  }
}

// Runs the plans of a group with one executor. Plans that compare kinds of access have their own.
class GroupExecutors {
 public:
  GroupExecutors(int rank, Team& team, Transport* transport, const engine::Ops& ops,
                 const ExecutorOptions& options, const ProbeGroup& group) {
    const auto open = [&](const ExecutorOptions& own) {
      Executor& made = all_.emplace_back(rank, team, transport, ops, OwnedState{}, own);
      made.open(group.step);
      return &made;
    };
    of_plan_.assign(group.step.size(), open(options));
    for (std::size_t p = 0; p < group.probes.size(); ++p)
      if (const auto own = own_options(group.probes[p].kind, options)) of_plan_[p + 1] = open(*own);
  }

  void run(int plan) {
    Executor& by = *of_plan_[std::size_t(plan)];
    by.start(plan, nullptr);
    by.wait(plan, "calibration");
  }
  void tell_peers() { all_.front().tell_peers(); }

 private:
  std::deque<Executor> all_;
  std::vector<Executor*> of_plan_;
};

// Returns whether a rank with this error does not come to the exchange of times.
bool left(engine::Code code) {
  return code == engine::Code::kTimeout || code == engine::Code::kPeerLost;
}

}  // namespace

ProbeRun::ProbeRun(Job& job, const std::vector<ProbeGroup>& largest, const engine::Ops& ops,
                   const std::vector<std::vector<int>>& processors, std::function<double()> waited)
    : job_(job),
      ranks_(job.ranks()),
      ops_(ops),
      waited_(std::move(waited)),
      mine_(ranks_.mine()),
      activity_(job, kWhat, " while costs were measured"),
      elements_(most(largest, &ProbeGroup::elements)),
      waits_(ranks_.host.size()) {
  memory_ = std::make_unique<HostMemory>(
      ranks_, pages_of(elements_) + pages_of(most(largest, &ProbeGroup::scratch)),
      kTeams * (control_bytes(ranks_.local().size()) + kLine), kWhat);
  transports_ = connect_hosts(ranks_, all_plans(largest), job.network(), job.deadline(), kWhat);
  threads_ = std::make_unique<ReplicaThreads>(processors);
}

void ProbeRun::add_team(const ProbeGroup& group) {
  const std::size_t number = teams_.size();
  engine::invariant(number < kTeams && group.step.size() <= kPlans,
                    "a calibration has more groups or plans than there is room for");
  const std::size_t bytes = control_bytes(memory_->local().size());
  auto team = std::make_unique<JobTeam>(job_, *memory_, group.step.size(),
                                        memory_->control() + number * bytes);
  for (const int rank : memory_->local()) {
    team->set_base(rank, Space::kGradient, memory_->block(rank));
    team->set_base(rank, Space::kScratch, memory_->block(rank) + pages_of(elements_));
  }
  teams_.push_back(std::move(team));
}

std::atomic<std::uint32_t>& ProbeRun::goes_on(std::size_t team, int turn) const {
  std::byte* const lines = memory_->control() + kTeams * control_bytes(memory_->local().size());
  return reinterpret_cast<std::atomic<std::uint32_t>*>(lines + team * kLine)[turn];
}

void ProbeRun::measure(int index, const ProbeGroup& group, std::size_t number,
                       Clock::time_point run_began, Times& times) {
  const int rank = mine_[std::size_t(index)];
  Team& team = *teams_[number];
  GroupExecutors executors(rank, team, transports_[std::size_t(index)].get(), ops_,
                           job_.executor_options(), group);
  auto* const numbers = reinterpret_cast<float*>(memory_->block(rank));
  const bool leads = rank == memory_->local().front();
  // All ranks of a host synchronize before a probe, so that all have written, and again, so that
  // all begin together. They also do so after it, so that nobody writes while others still read.
  // Between hosts a barrier takes longer than many probes, and nobody writes. The first rank of a
  // host decides whether to go on, and the others read that after the next barrier.
  std::atomic<std::uint32_t>& over = goes_on(number, 0);
  const auto once = [&](std::size_t probe) -> std::optional<double> {
    if (group.writes) std::fill_n(numbers, group.elements, 1.0f);
    if (leads && group.limit > 0 && engine::seconds_since(run_began) > group.limit) over.store(1);
    if (!group.wire) executors.run(0);
    if (over.load() != 0) return std::nullopt;
    executors.run(0);
    const auto begin = Clock::now();
    executors.run(int(probe) + 1);
    const double took = engine::seconds_since(begin);
    if (!group.wire) executors.run(0);
    return took;
  };
  const auto began = Clock::now();
  const auto next_turn = [&](int turn) {
    if (group.wire || turn == 0) return true;
    if (leads)
      goes_on(number, turn).store(another_turn(group, turn, engine::seconds_since(began)) ? 1 : 0);
    executors.run(0);
    return goes_on(number, turn).load() != 0;
  };
  try {
    std::vector<Times> found(group.probes.size());
    bool ended = false;  // agreed by all ranks
    for (int turn = 0; turn < ProbeGroup::kTurns && !ended && next_turn(turn); ++turn)
      for (std::size_t p = 0; p < group.probes.size() && !ended; ++p) {
        const int all = group.probes[p].repetitions;
        // The first run only warms the caches, which hold the data of another probe.
        if (all > kFew && !group.wire) ended = !once(p);
        for (int i = all * turn / ProbeGroup::kTurns;
             i < all * (turn + 1) / ProbeGroup::kTurns && !ended; ++i) {
          const std::optional<double> took = once(p);
          if (took) found[p].push_back(*took);
          ended = !took;
        }
      }
    for (const Times& one : found) {
      times.push_back(double(one.size()));
      times.insert(times.end(), one.begin(), one.end());
    }
  } catch (const engine::Error& error) {
    team.stop(error);
    executors.tell_peers();
    throw;
  }
}

std::vector<Sample> ProbeRun::measure(const std::vector<ProbeGroup>& groups) {
  const std::size_t before = teams_.size();
  for (const ProbeGroup& group : groups) add_team(group);
  std::vector<Times> times(mine_.size());
  // A failed process reports its error with the exchange of times, since ranks of other hosts may
  // measure without contact to it.
  const Outcome mine(kWhat + "times", [&] {
    threads_->run(
        [&](int index) {
          Times& of_rank = times[std::size_t(index)];
          ProcessorWaitClock clock(waited_);
          const Clock::time_point began = Clock::now();
          for (std::size_t g = 0; g < groups.size(); ++g)
            measure(index, groups[g], before + g, began, of_rank);
          const ProcessorWait wait = clock.lap();
          of_rank.insert(of_rank.end(), {wait.waited, wait.seconds});
        },
        [&](const std::exception& error) {
          for (const auto& team : teams_) team->stop({engine::Code::kAborted, error.what()});
        });
    std::string text;
    for (const Times& of_rank : times)
      text.append(reinterpret_cast<const char*>(of_rank.data()), of_rank.size() * sizeof(double));
    return text;
  });
  return samples_of(groups, mine.texts(exchange(mine.told())));
}

ProcessorWait ProbeRun::processor_wait() const {
  return *std::max_element(waits_.begin(), waits_.end(),
                           [](const auto& a, const auto& b) { return a.part() < b.part(); });
}

// Exchanges the times. A rank that died or timed out does not come here. Its neighbors on its host
// have broken off and told their peers on other hosts, which may have ended before. Those poll
// their connections while they wait here, and pass on what they receive.
std::vector<std::string> ProbeRun::exchange(const std::string& mine) {
  std::jthread listener;
  if (!ranks_.one_host())
    listener = std::jthread([this](const std::stop_token& stop) { listen(stop); });
  try {
    return ranks_.bootstrap.all_gather(mine, kWhat + "times");
  } catch (const engine::Error& error) {
    listener = {};  // joins
    for (const auto& transport : transports_)
      if (transport != nullptr) transport->abort(error);
    throw;
  }
}

// Polls the connections for lost ranks. The exchange itself reports other failures.
void ProbeRun::listen(const std::stop_token& stop) noexcept {
  std::vector<bool> deaf(transports_.size());
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    for (std::size_t i = 0; i < transports_.size(); ++i) {
      if (deaf[i]) continue;
      try {
        transports_[i]->progress();
      } catch (const engine::Error& error) {
        deaf[i] = true;
        if (left(error.code())) ranks_.bootstrap.abandon(error.with(kWhat + error.what()));
      }
    }
    stopped.wait_for(lock, stop, kListens, [] { return false; });
  }
}

// Returns the samples. Ranks are numbered process by process: each process's bytes are those of its
// ranks, one by one. They give the number of repetitions and the times of each probe. Some hosts do
// fewer repetitions than others; then only that many count.
std::vector<Sample> ProbeRun::samples_of(const std::vector<ProbeGroup>& groups,
                                         const std::vector<std::string>& all) {
  std::vector<Sample> samples;
  for (const ProbeGroup& group : groups)
    for (const Probe& probe : group.probes) samples.push_back({probe, {}});
  std::vector<std::vector<Times>> times(samples.size());  // [probe][rank]
  const char *at = nullptr, *end = nullptr;
  for (std::size_t rank = 0; rank < ranks_.process.size(); ++rank) {
    const std::string& text = all[std::size_t(ranks_.process[rank])];
    if (rank == 0 || ranks_.process[rank - 1] != ranks_.process[rank])
      at = text.data(), end = text.data() + text.size();
    const auto next = [&] {
      double value = 0;
      engine::invariant(end - at >= std::ptrdiff_t(sizeof value),
                        "a process told of too few times");
      std::memcpy(&value, at, sizeof value);
      at += sizeof value;
      return value;
    };
    for (auto& of_probe : times) {
      Times& mine = of_probe.emplace_back(std::size_t(next()));
      std::generate(mine.begin(), mine.end(), next);
    }
    waits_[rank].waited += next();
    waits_[rank].seconds += next();
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto fewest =
        std::min_element(times[i].begin(), times[i].end(),
                         [](const Times& a, const Times& b) { return a.size() < b.size(); });
    for (std::size_t repetition = 0; repetition < fewest->size(); ++repetition) {
      auto& of_ranks = samples[i].seconds.emplace_back();
      for (const Times& of_rank : times[i]) of_ranks.push_back(of_rank[repetition]);
    }
  }
  return samples;
}

}  // namespace lockstep::collectives
