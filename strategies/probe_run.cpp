// SPDX-License-Identifier: MIT
#include "strategies/probe_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "collectives/executor.h"
#include "engine/base/error.h"
#include "strategies/host_connections.h"

namespace lockstep::strategies {
namespace {

using collectives::Executor;
using collectives::Probe;
using collectives::ProbeGroup;
using collectives::Sample;
using collectives::Space;
using collectives::Team;
using engine::Clock;

constexpr std::size_t kPage = 4096, kLine = 64;
// Teams over one control block: more groups than a calibration has.
constexpr std::size_t kTeams = 40, kPlans = 8;
// Repetitions in so many turns of all probes of a group, so that a burst of other work on the
// machine does not hit all repetitions of one.
constexpr int kTurns = 3;
// With so few repetitions the first one counts: it is left out where others are faster.
constexpr int kFew = 3;
const std::string kWhat = "calibration: ";
// First letter of what is exchanged.
constexpr char kMeasured = '+', kFailed = '-';

std::size_t pages(std::size_t elements) {
  const std::size_t bytes = std::max<std::size_t>(elements, 1) * sizeof(float);
  return (bytes + kPage - 1) / kPage * kPage;
}

std::size_t control_bytes(std::size_t local) {
  return (Team::control_bytes(local, kPlans) + kLine - 1) / kLine * kLine;
}

template <class Size>
std::size_t most(const std::vector<ProbeGroup>& groups, const Size& size) {
  std::size_t most = 0;
  for (const ProbeGroup& group : groups) most = std::max(most, group.*size);
  return most;
}

collectives::StepPlan all_plans(const std::vector<ProbeGroup>& groups) {
  collectives::StepPlan all;
  for (const ProbeGroup& group : groups)
    all.insert(all.end(), group.step.begin(), group.step.end());
  return all;
}

}  // namespace

ProbeRun::ProbeRun(const JobRanks& ranks, const std::vector<ProbeGroup>& largest,
                   const engine::Ops& ops, const std::vector<std::vector<int>>& processors,
                   std::chrono::milliseconds deadline, const Network& network)
    : ranks_(ranks),
      ops_(ops),
      deadline_(deadline),
      mine_(ranks.mine()),
      elements_(most(largest, &ProbeGroup::elements)) {
  watch();
  memory_ = std::make_unique<HostMemory>(
      ranks, pages(elements_) + pages(most(largest, &ProbeGroup::scratch)),
      kTeams * control_bytes(ranks.local().size()), kWhat);
  transports_ = connect_hosts(ranks, all_plans(largest), network, deadline, kWhat);
  threads_ = std::make_unique<ReplicaThreads>(processors);
}

ProbeRun::~ProbeRun() {
  watch_->release();
}

// Who dies ends what is measured, and what is exchanged.
void ProbeRun::watch() {
  watch_ = std::make_unique<collectives::PeerWatch>([this](const std::string& who, int pid) {
    const std::string why =
        fmt::format("{}{} (process {}) died while costs were measured", kWhat, who, pid);
    {
      std::scoped_lock lock(mutex_);
      if (lost_.empty()) lost_ = why;
    }
    stop(engine::Code::kPeerLost, why);
    ranks_.bootstrap.abandon(engine::Code::kPeerLost, why);
  });
  watch_host(ranks_, kWhat + "processes of the ranks", *watch_);
}

void ProbeRun::stop(engine::Code code, const std::string& why) noexcept {
  std::scoped_lock lock(mutex_);
  for (const auto& team : teams_) team->stop(code, why);
}

Team& ProbeRun::team_for(const ProbeGroup& group, std::size_t number) {
  engine::invariant(number < kTeams && group.step.size() <= kPlans,
                    "a calibration has more groups or plans than there is room for");
  const std::size_t bytes = control_bytes(memory_->local().size());
  auto team = std::make_unique<Team>(memory_->local(), group.step.size(),
                                     memory_->control() + number * bytes);
  for (const int rank : memory_->local()) {
    team->set_base(rank, Space::kGradient, memory_->block(rank));
    team->set_base(rank, Space::kScratch, memory_->block(rank) + pages(elements_));
  }
  std::scoped_lock lock(mutex_);
  if (!lost_.empty()) team->stop(engine::Code::kPeerLost, lost_);
  teams_.push_back(std::move(team));
  return *teams_.back();
}

void ProbeRun::measure(int index, const ProbeGroup& group, Team& team, Times& times) {
  const int rank = mine_[std::size_t(index)];
  Executor executor(rank, team, transports_[std::size_t(index)].get(), ops_, {},
                    {.deadline = deadline_});
  executor.open(group.step);
  auto* const numbers = reinterpret_cast<float*>(memory_->block(rank));
  const auto run = [&](int plan) {
    executor.start(plan, nullptr);
    executor.wait(plan, "calibration");
  };
  const auto once = [&](std::size_t probe) {
    if (group.writes) std::fill_n(numbers, group.elements, 1.0f);
    run(0);
    run(0);
    const auto begin = Clock::now();
    run(int(probe) + 1);
    const std::chrono::duration<double> took = Clock::now() - begin;
    run(0);
    return took.count();
  };
  try {
    std::vector<Times> found(group.probes.size());
    for (int turn = 0; turn < kTurns; ++turn)
      for (std::size_t p = 0; p < group.probes.size(); ++p) {
        const int all = group.probes[p].repetitions;
        if (all > kFew) once(p);  // the caches hold what another probe used
        for (int i = all * turn / kTurns; i < all * (turn + 1) / kTurns; ++i)
          found[p].push_back(once(p));
      }
    for (const Times& of_probe : found) times.insert(times.end(), of_probe.begin(), of_probe.end());
  } catch (const engine::Error& error) {
    team.stop(error.code(), error.what());
    executor.tell_peers();
    throw;
  }
}

std::vector<Sample> ProbeRun::measure(const std::vector<ProbeGroup>& groups) {
  std::vector<Team*> teams;
  for (const ProbeGroup& group : groups) teams.push_back(&team_for(group, teams_.size()));
  std::vector<Times> times(mine_.size());
  // Who failed says so where times are exchanged: ranks of other hosts may measure without a word
  // to him. Who has waited in vain has waited long enough.
  std::string text(1, kMeasured);
  engine::Code failed{};
  try {
    threads_->run(
        [&](int index) {
          for (std::size_t g = 0; g < groups.size(); ++g)
            measure(index, groups[g], *teams[g], times[std::size_t(index)]);
        },
        [&](const std::exception& error) { stop(engine::Code::kAborted, error.what()); });
    for (const Times& of_rank : times)
      text.append(reinterpret_cast<const char*>(of_rank.data()), of_rank.size() * sizeof(double));
  } catch (const engine::Error& error) {
    if (error.code() == engine::Code::kTimeout || error.code() == engine::Code::kPeerLost) throw;
    failed = error.code(), text = error.what();
    text.insert(text.begin(), kFailed);
  }
  const auto all = ranks_.bootstrap.all_gather(text, kWhat + "times");
  if (text[0] == kFailed) engine::fail(failed, "{}", text.substr(1));
  for (const std::string& other : all)
    if (other[0] == kFailed) engine::fail(engine::Code::kAborted, "{}", other.substr(1));
  // Ranks are numbered process by process: each process's bytes are its ranks' one by one.
  std::vector<const char*> at;
  for (std::size_t rank = 0; rank < ranks_.process.size(); ++rank) {
    const int process = ranks_.process[rank];
    const bool first = rank == 0 || ranks_.process[rank - 1] != process;
    at.push_back(first ? all[std::size_t(process)].data() + 1
                       : at.back() + times[0].size() * sizeof(double));
  }
  std::vector<Sample> samples;
  for (const ProbeGroup& group : groups)
    for (const Probe& probe : group.probes) {
      Sample& sample = samples.emplace_back(Sample{probe, {}});
      for (int i = 0; i < probe.repetitions; ++i) {
        auto& of_ranks = sample.seconds.emplace_back();
        for (const char*& value : at) {
          std::memcpy(&of_ranks.emplace_back(), value, sizeof(double));
          value += sizeof(double);
        }
      }
    }
  return samples;
}

}  // namespace lockstep::strategies
