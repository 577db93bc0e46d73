// SPDX-License-Identifier: MIT
#include "collectives/cost/probes.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "collectives/algorithms/steps.h"
#include "engine/base/hash.h"

namespace lockstep::collectives {
namespace {

constexpr std::size_t kFewElements = 16;  // elements of steps with negligible data
constexpr std::size_t kChunk = (std::size_t(256) << 10) / sizeof(float);  // as in algorithms
constexpr int kBulkLanes = 4;
constexpr std::size_t kSmallestPart = engine::kBlock * sizeof(float);  // that one rank adds
// Bytes that all repetitions of a pass move (approximate), within limits on the repetitions.
constexpr std::size_t kMoved = std::size_t(64) << 20;
constexpr std::size_t kLeastRepetitions = 3, kMostRepetitions = 24;
constexpr std::size_t kMostStores = 6;
constexpr double kLineBytes = 128 << 10;          // outlasts the barriers, fits in a core's caches
constexpr std::size_t kUnit = 2 * kSmallestPart;  // numbers and results

std::vector<std::vector<int>> ranks_by_host(const std::vector<int>& host) {
  std::map<int, std::vector<int>> by_host;
  for (std::size_t rank = 0; rank < host.size(); ++rank) by_host[host[rank]].push_back(int(rank));
  std::vector<std::vector<int>> hosts;
  for (auto& [number, ranks] : by_host) hosts.push_back(std::move(ranks));
  return hosts;
}

std::size_t elements_of(const Probe& probe) {
  return std::max<std::size_t>(1, std::size_t(probe.size) / sizeof(float));
}

void rounds(Lane& lane, const std::vector<int>& ranks, int count) {
  for (int phase = 1; phase <= count; ++phase) {
    lane.push_back(arrive());
    lane.push_back(await(ranks, phase));
  }
}

// Adds a slice. A rank that is alone adds its own numbers from two places, as if it had received
// some.
void add_slice(Lane& lane, const std::vector<int>& ranks, Range slice, std::size_t count) {
  if (slice.empty()) return;
  auto from = everywhere(ranks, Space::kGradient, slice.begin);
  const auto to = from;
  if (ranks.size() == 1) from.push_back({ranks[0], Space::kGradient, count + slice.begin});
  lane.push_back(reduce(slice.size(), from, to));
}

void local_lane(Lane& lane, const Probe& probe, const std::vector<int>& ranks, std::size_t place) {
  const std::size_t count = elements_of(probe);
  const int n = int(ranks.size()), me = ranks[place];
  switch (probe.kind) {
    case Probe::Kind::kRounds:
      return rounds(lane, ranks, int(probe.size));
    case Probe::Kind::kArrivals:
      rounds(lane, ranks, 1);
      for (int i = 0; i < int(probe.size); ++i) lane.push_back(arrive());
      return;
    case Probe::Kind::kReductions:
      rounds(lane, ranks, 1);
      for (int i = 0; i < int(probe.size); ++i)
        lane.push_back(reduce(kFewElements,
                              {{me, Space::kGradient, 0}, {me, Space::kGradient, engine::kBlock}},
                              {{me, Space::kGradient, 0}}));
      return;
    case Probe::Kind::kTogether:
    case Probe::Kind::kWriteAhead:
    case Probe::Kind::kReadAhead:
      rounds(lane, ranks, 1);
      if (probe.kind != Probe::Kind::kTogether && !asks_ahead(ranks.size())) return;
      add_slice(lane, ranks, slice({0, count}, int(place), n), count);
      break;
    case Probe::Kind::kAlone:
      rounds(lane, ranks, 1);
      if (place == 0) add_slice(lane, ranks, {0, count}, count);
      break;
    case Probe::Kind::kFetched: {
      rounds(lane, ranks, 1);
      if (n < 2) break;
      const std::size_t after = (place + 1) % ranks.size();
      const auto numbers = [](int rank, Range range) {
        return Operand{rank, Space::kGradient, range.begin};
      };
      const Range mine = slice({0, count}, int(place), n), other = slice({0, count}, int(after), n);
      const int next = ranks[after];
      if (!mine.empty())
        lane.push_back(reduce(mine.size(), everywhere(ranks, Space::kGradient, mine.begin),
                              {numbers(me, mine)}));
      lane.push_back(arrive());
      lane.push_back(await(ranks, 2));
      if (!other.empty())
        lane.push_back(reduce(other.size(), {numbers(next, other)}, {numbers(me, other)}));
      lane.push_back(arrive());
      lane.push_back(await(ranks, 3));
      return;
    }
    case Probe::Kind::kKept:
    case Probe::Kind::kStreamed: {
      rounds(lane, ranks, 1);
      const std::size_t half = count / 2;
      const Range mine = slice({0, half}, int(place), n);
      if (!mine.empty())
        lane.push_back(reduce(mine.size(), everywhere(ranks, Space::kGradient, mine.begin),
                              everywhere(ranks, Space::kGradient, half + mine.begin)));
      lane.push_back(arrive());
      lane.push_back(await(ranks, 2));
      const Operand numbers{me, Space::kGradient, 0}, results{me, Space::kGradient, half};
      if (half > 0) lane.push_back(reduce(half, {numbers, results}, {numbers}));
      lane.push_back(arrive());
      lane.push_back(await(ranks, 3));
      return;
    }
    default:
      return;
  }
  lane.push_back(arrive());
  lane.push_back(await(ranks, 2));
}

// Posts one message each way, of `count` elements from and to these places. Returns the first step.
int post(Lane& lane, int me, int before, int next, std::size_t count, Operand from, Operand to) {
  from.rank = to.rank = me;
  lane.push_back(post_receive(count, to, before));
  lane.push_back(post_send(count, from, next));
  return int(lane.size()) - 2;
}

void wait_for(Lane& lane, int posted) {
  lane.push_back(wait(posted));
  lane.push_back(wait(posted + 1));
}

// Passes a message through all hosts. The first rank of each host forwards it when all ranks of the
// host have arrived, and signals them afterwards. So all flows begin together.
void turn_lane(Lane& lane, bool first, const std::vector<int>& local, std::size_t place, int before,
               int next) {
  const int me = local[place];
  if (place > 0) {
    lane = {arrive(), await({local[0]}, 1)};
    return;
  }
  const std::vector<int> others(local.begin() + 1, local.end());
  const auto through = [&](const Step& posted) {
    lane.push_back(posted);
    lane.push_back(wait(int(lane.size()) - 1));
  };
  const Step send = post_send(kFewElements, {me, Space::kGradient, 0}, next);
  if (!others.empty()) lane.push_back(await(others, 1));
  if (first) through(send);
  through(post_receive(kFewElements, {me, Space::kScratch, 0}, before));
  if (!first) through(send);
  if (!others.empty()) lane.push_back(arrive());
}

// Appends a flow between hosts. `local`: the ranks of this host that have a flow. `flow`: index in
// `local`.
void wire_lanes(std::vector<Lane>& lanes, const Probe& probe, bool first,
                const std::vector<int>& local, std::size_t flow, int before, int next) {
  const int me = local[flow];
  const std::size_t flows = local.size();
  const Operand from{0, Space::kGradient, 0}, to{0, Space::kScratch, 0};
  if (probe.kind == Probe::Kind::kBulk) {
    const Range mine = slice({0, elements_of(probe)}, int(flow), int(flows));
    lanes.resize(kBulkLanes);
    int lane = 0;
    for (std::size_t at = 0; at < mine.size(); at += kChunk, lane = (lane + 1) % kBulkLanes) {
      const std::size_t count = std::min(kChunk, mine.size() - at);
      const std::size_t place = std::size_t(lane) * kChunk;
      wait_for(lanes[std::size_t(lane)],
               post(lanes[std::size_t(lane)], me, before, next, count, {0, Space::kGradient, place},
                    {0, Space::kScratch, place}));
    }
    return;
  }
  Lane& lane = lanes[0];
  if (probe.kind == Probe::Kind::kTurn) return turn_lane(lane, first, local, flow, before, next);
  if (flow != 0) return;
  std::vector<int> posted;
  for (int i = 0; i < int(probe.size); ++i) {
    posted.push_back(post(lane, me, before, next, kFewElements, from, to));
    if (probe.kind == Probe::Kind::kMessages) wait_for(lane, posted.back());
  }
  if (probe.kind == Probe::Kind::kAtOnce)
    for (const int one : posted) wait_for(lane, one);
}

bool between_hosts(const Probe& probe) {
  return probe.kind >= Probe::Kind::kTurn;
}

std::size_t largest_host(const std::vector<int>& host) {
  std::size_t most = 1;
  for (const auto& local : ranks_by_host(host)) most = std::max(most, local.size());
  return most;
}

std::size_t least_ranks(const std::vector<std::vector<int>>& hosts) {
  std::size_t least = hosts[0].size();
  for (const auto& ranks : hosts) least = std::min(least, ranks.size());
  return least;
}

ProbeGroup group(std::string name, const std::vector<int>& host, const Probe& meeting,
                 std::vector<Probe> probes) {
  ProbeGroup made{.name = std::move(name), .probes = std::move(probes)};
  made.step.push_back({probe_plan(meeting, host), {}, false});
  for (const Probe& probe : made.probes) made.step.push_back({probe_plan(probe, host), {}, false});
  return made;
}

// Barrier between hosts. Ranks leave it one after the other, as they leave most collectives between
// hosts. So the rank that begins next finds others asleep.
constexpr Probe kWireMeeting{Probe::Kind::kTurn, 1, 1};

// Returns the repetitions with which `bytes` each time are not too many in all.
int repetitions_of(std::size_t bytes, std::size_t most) {
  return int(std::clamp(kMoved / bytes, kLeastRepetitions, most));
}

}  // namespace

bool asks_ahead(std::size_t ranks) {
  return ranks > 1 && ranks <= engine::kSummedAtOnce;
}

Plan probe_plan(const Probe& probe, const std::vector<int>& host) {
  Request request;
  request.name = "calibration";
  request.subject = {0, elements_of(probe)};
  request.host = host;
  Plan plan = empty_plan(request, "probe", 1);
  const auto hosts = ranks_by_host(host);
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const auto& ranks = hosts[h];
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      auto& lanes = plan.lanes[std::size_t(ranks[place])];
      if (!between_hosts(probe)) {
        local_lane(lanes[0], probe, ranks, place);
      } else if (hosts.size() > 1 && place < least_ranks(hosts)) {
        const auto flows = std::ptrdiff_t(least_ranks(hosts));
        wire_lanes(lanes, probe, h == 0, {ranks.begin(), ranks.begin() + flows}, place,
                   hosts[(h + hosts.size() - 1) % hosts.size()][place],
                   hosts[(h + 1) % hosts.size()][place]);
      }
    }
  }
  return plan;
}

bool another_turn(const ProbeGroup& group, int turns, double seconds) {
  return group.seconds <= 0 || seconds / turns * (turns + 1) <= group.seconds;
}

ProbeGroup signal_probes(const std::vector<int>& host) {
  ProbeGroup made = group("signals", host, {Probe::Kind::kRounds, 1, 1},
                          {{Probe::Kind::kRounds, 1, 60},
                           {Probe::Kind::kRounds, 16, 24},
                           {Probe::Kind::kArrivals, 64, 24},
                           {Probe::Kind::kReductions, 64, 24}});
  made.elements = 2 * engine::kBlock;
  return made;
}

ProbeGroup pass_probe(const std::vector<int>& host, std::size_t bytes, int hosts_of_machine) {
  std::size_t ranks = 1;
  bool alone = false;
  for (const auto& local : ranks_by_host(host)) {
    ranks = std::max(ranks, local.size());
    alone |= local.size() == 1;
  }
  const int times = repetitions_of(bytes * ranks * std::size_t(hosts_of_machine), kMostRepetitions);
  ProbeGroup made =
      group(fmt::format("passes over {} bytes", bytes), host, {Probe::Kind::kRounds, 1, 1},
            {{Probe::Kind::kTogether, double(bytes), times},
             {Probe::Kind::kAlone, double(bytes), times},
             {Probe::Kind::kFetched, double(bytes), times}});
  made.writes = true;
  made.elements = (alone ? 2 : 1) * elements_of(made.probes[0]);
  return made;
}

ProbeGroup line_probe(const std::vector<int>& host) {
  ProbeGroup made = group("lines asked for ahead", host, {Probe::Kind::kRounds, 1, 1},
                          {{Probe::Kind::kWriteAhead, kLineBytes, int(kMostRepetitions)},
                           {Probe::Kind::kReadAhead, kLineBytes, int(kMostRepetitions)}});
  made.writes = true;
  made.elements = elements_of(made.probes[0]);
  return made;
}

ProbeGroup store_probe(const std::vector<int>& host, std::size_t bytes, int hosts_of_machine) {
  const std::size_t ranks = largest_host(host);
  const int times = repetitions_of(bytes * ranks * std::size_t(hosts_of_machine), kMostStores);
  ProbeGroup made = group(
      fmt::format("stores of {} bytes", bytes / 2), host, {Probe::Kind::kRounds, 1, 1},
      {{Probe::Kind::kKept, double(bytes), times}, {Probe::Kind::kStreamed, double(bytes), times}});
  made.writes = true;
  made.elements = elements_of(made.probes[0]);
  return made;
}

std::vector<std::size_t> store_probe_sizes(std::size_t touched, std::size_t ranks) {
  std::vector<std::size_t> sizes;
  for (std::size_t part : {16, 4, 1}) {
    const std::size_t bytes = touched / part / std::max<std::size_t>(ranks, 1) / kUnit * kUnit;
    if (bytes > 0 && (sizes.empty() || bytes > sizes.back())) sizes.push_back(bytes);
  }
  return sizes;
}

double stored_at_once(const Probe& probe, std::size_t ranks) {
  return probe.size / 2 / double(std::max<std::size_t>(ranks, 1));
}

ProbeGroup wire_group(std::string name, const std::vector<int>& host, std::vector<Probe> probes) {
  ProbeGroup made = group(std::move(name), host, kWireMeeting, std::move(probes));
  made.elements = made.scratch = kBulkLanes * kChunk;
  made.wire = true;
  return made;
}

std::vector<std::size_t> pass_sizes(std::size_t most, std::size_t ranks) {
  const std::size_t least = ranks * kSmallestPart;
  std::vector<std::size_t> sizes{most};
  for (;;) {
    const std::size_t next =
        sizes.back() / (sizes.size() == 1 ? 3 : 4) / kSmallestPart * kSmallestPart;
    if (2 * next < 3 * least) break;
    sizes.push_back(next);
  }
  if (most > least) sizes.push_back(least);
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

std::uint64_t hash(const std::vector<ProbeGroup>& groups) {
  std::string all;
  for (const ProbeGroup& group : groups) {
    all += fmt::format("{}: {} {} {} {} {}\n", group.name, group.writes, group.wire, group.elements,
                       group.scratch, print(group.step));
    for (const Probe& probe : group.probes)
      all += fmt::format("{} {} {} {}\n", int(probe.kind), probe.size, probe.repetitions,
                         probe.algorithm);
  }
  return engine::hash(all);
}

}  // namespace lockstep::collectives
