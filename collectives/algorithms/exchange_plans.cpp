// SPDX-License-Identifier: MIT
#include "collectives/algorithms/exchange_plans.h"

#include <algorithm>
#include <map>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/circle.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// Segments in flight. One is added while others are on the wire, and one more waits to be sent. So
// a wire is idle only if a whole round takes longer than sending the rest. More segments cost
// scratch and gain no bandwidth.
constexpr int kInFlight = 4;

// Smallest message worth a split. Below it, the overhead of a second message (system call and
// wake-up at both ends) exceeds what overlap with the first one's addition saves.
constexpr std::size_t kLeastMessage = std::size_t(16) << 10;

// Alignment of received numbers in elements: a cache line of the narrowest type.
constexpr std::size_t kLineElements = 32;

std::size_t ceil_divide(std::size_t a, std::size_t b) {
  return (a + b - 1) / b;
}

// Returns the scratch elements of one lane.
std::size_t most_scratch(const Segments& list, const Exchange& exchange) {
  std::size_t most = 0;
  for (int i = 0; i < list.count; ++i) most = std::max(most, exchange.scratch(list[i]));
  return ceil_divide(most, kLineElements) * kLineElements;
}

// Appends all walks of a party in one of its lanes. `scratch`: elements per lane.
void walk_lane(const Request& request, const Exchange& exchange, int party, const Segments& list,
               int index, std::size_t scratch, Lane& lane) {
  Place place{index, 0, request.scratch + std::size_t(index) * scratch};
  for (int i = index; i < list.count; i += list.lanes, ++place.walks)
    exchange.walk(lane, party, list[i], place);
  exchange.end(lane, party, list[index], place);
}

// A slice's exchange and its segments.
struct Led {
  std::unique_ptr<Exchange> exchange;
  Segments list;
};

class Leaders {
 public:
  Leaders(const Request& request, int most, const MakeExchange& make) {
    require_possible(request);
    std::map<int, std::vector<int>> by_host;
    for (const int rank : all_ranks(request))
      by_host[request.host[std::size_t(rank)]].push_back(rank);
    int slices = most;
    for (auto& [host, ranks] : by_host) {
      slices = std::min(slices, int(ranks.size()));
      hosts_.push_back(std::move(ranks));
    }
    for (int s = 0; s < slices; ++s) {
      const Range mine = slice(request.subject, s, slices);
      if (mine.empty()) continue;
      std::vector<Party> leaders;
      for (const auto& ranks : hosts_) {
        const int n = int(ranks.size());
        leaders.push_back({ranks[std::size_t(((s - request.rotation) % n + n) % n)], ranks});
      }
      Led& led = led_.emplace_back(Led{make(std::move(leaders), mine), {}});
      led.list = segments(request, mine, led.exchange->parts());
      lanes_ = std::max(lanes_, led.list.lanes);
      lane_scratch_ = std::max(lane_scratch_, most_scratch(led.list, *led.exchange));
    }
  }
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }  // ranks by host
  const std::vector<Led>& led() const { return led_; }                   // non-empty slices
  int lanes() const { return lanes_; }
  std::size_t lane_scratch() const { return lane_scratch_; }

 private:
  std::vector<std::vector<int>> hosts_;
  std::vector<Led> led_;
  int lanes_ = 1;
  std::size_t lane_scratch_ = 0;
};

void refuse_squares(const Request& request, const std::string& algorithm) {
  engine::require(!request.squares, "{}: {} leaves no squares; add local_squares after it",
                  request.name, algorithm);
}

}  // namespace

Segments segments(const Request& request, Range slice, int parts) {
  Segments result{slice};
  if (parts == 1) return result;
  const std::size_t width = engine::size_of(request.dtype), pieces = std::size_t(parts);
  const std::size_t message = slice.size() * width / pieces;  // bytes, if it were one segment
  std::size_t count = ceil_divide(message, std::max<std::size_t>(request.chunk_bytes, 1));
  if (message >= 2 * kLeastMessage) count = std::max<std::size_t>(count, 2);
  // Each part of each segment has at least one block.
  const std::size_t most = slice.size() / engine::kBlock / pieces;
  result.count = int(std::clamp<std::size_t>(count, 1, std::max<std::size_t>(most, 1)));
  result.lanes = std::min(result.count, kInFlight);
  return result;
}

Plan among_all(const Request& request, std::string algorithm, const Exchange& exchange) {
  refuse_squares(request, algorithm);
  const Segments list = segments(request, request.subject, exchange.parts());
  Plan plan = empty_plan(request, std::move(algorithm), list.lanes);
  if (request.subject.empty() || (plan.ranks() == 1 && !request.update)) return plan;
  const std::size_t scratch = most_scratch(list, exchange);
  for (int party = 0; party < exchange.parties(); ++party) {
    auto& lanes = plan.lanes[std::size_t(exchange.rank(party))];
    for (int l = 0; l < list.lanes; ++l)
      walk_lane(request, exchange, party, list, l, scratch, lanes[std::size_t(l)]);
  }
  return plan;
}

std::size_t among_all_scratch(const Request& request, const Exchange& exchange) {
  const Segments list = segments(request, request.subject, exchange.parts());
  return std::size_t(list.lanes) * most_scratch(list, exchange);
}

MakeExchange circle_of_leaders(const Request& request) {
  return [&request](std::vector<Party> leaders, Range) {
    return std::make_unique<Circle>(request, std::move(leaders));
  };
}

// A rank's lane 0 begins with its arrival and ends with waits for the leaders. A leader's lanes
// have the walks in between. Other ranks see a leader's writes when its lane has arrived after its
// last walk: the second arrival of lane 0, the first of other lanes. A host of one rank needs no
// synchronization.
Plan among_leaders(const Request& request, std::string algorithm, int most,
                   const MakeExchange& make) {
  refuse_squares(request, algorithm);
  const Leaders leaders(request, most, make);  // checks the request even for one host
  if (leaders.hosts().size() == 1) {
    Plan plan = direct_all_reduce(request);
    plan.algorithm = std::move(algorithm);
    return plan;
  }
  const std::size_t lanes = std::size_t(leaders.lanes());
  Plan plan = empty_plan(request, std::move(algorithm), leaders.lanes());
  for (std::size_t host = 0; host < leaders.hosts().size(); ++host) {
    const std::vector<int>& group = leaders.hosts()[host];
    const bool alone = group.size() == 1;
    std::vector<std::vector<int>> at_work{lanes};  // leaders, by lane
    for (const int rank : group)
      if (!alone) plan.lanes[std::size_t(rank)][0].push_back(arrive());
    for (const Led& led : leaders.led()) {
      const int me = led.exchange->rank(int(host));
      for (int l = 0; l < led.list.lanes; ++l) {
        Lane& lane = plan.lanes[std::size_t(me)][std::size_t(l)];
        if (!alone) lane.push_back(await(group, 1));
        walk_lane(request, *led.exchange, int(host), led.list, l, leaders.lane_scratch(), lane);
        if (!alone) lane.push_back(arrive());
        at_work[std::size_t(l)].push_back(me);
      }
    }
    for (const int rank : group)
      for (std::size_t l = 0; l < lanes; ++l) {
        std::vector<int> others = at_work[l];
        std::erase(others, rank);
        if (!others.empty())
          plan.lanes[std::size_t(rank)][0].push_back(
              await(std::move(others), l == 0 ? 2 : 1, int(l)));
      }
  }
  return plan;
}

std::size_t among_leaders_scratch(const Request& request, int most, const MakeExchange& make) {
  const Leaders leaders(request, most, make);
  return std::size_t(leaders.lanes()) * leaders.lane_scratch();
}

}  // namespace lockstep::collectives
