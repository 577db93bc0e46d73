// SPDX-License-Identifier: MIT
#include "tools/plan_exchange.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>

namespace lockstep::tools {
namespace {

using collectives::Action;
using collectives::Plan;
using collectives::Topology;

constexpr std::size_t kMostNodes = 16;  // with all their arrows
constexpr std::size_t kMostRings = 4;
constexpr std::size_t kMostRingLetters = 120;
// Space between nodes of two hosts, in distances of two neighbors.
constexpr double kHostGap = 0.7;

using Pairs = std::set<std::pair<int, int>>;  // giver and taker

struct Exchange {
  Pairs messages, memory;
  Pairs all() const {
    Pairs both = messages;
    both.insert(memory.begin(), memory.end());
    return both;
  }
};

// Describes a circle of ranks or hosts. Pairs hold indices in `names`.
struct NodeCircle {
  std::string title;
  std::vector<std::string> names;
  Exchange exchange;
  std::vector<int> host;  // one per name
};

Exchange exchange_of(const Plan& plan) {
  Exchange found;
  for (int me = 0; me < plan.ranks(); ++me)
    for (const auto& lane : plan.lanes[std::size_t(me)])
      for (const auto& step : lane) {
        if (step.action == Action::kPostSend) found.messages.emplace(me, step.peer);
        if (step.action != Action::kReduce) continue;
        for (const auto& operand : step.from)
          if (operand.rank != me) found.memory.emplace(operand.rank, me);
        for (const auto& operand : step.to)
          if (operand.rank != me) found.memory.emplace(me, operand.rank);
      }
  return found;
}

// Returns the pairs with other numbers. `number` returns -1 for what is left out.
template <class Number>
Pairs renumbered(const Pairs& pairs, Number number) {
  Pairs result;
  for (const auto& [giver, taker] : pairs) {
    const int a = number(giver), b = number(taker);
    if (a >= 0 && b >= 0 && a != b) result.emplace(a, b);
  }
  return result;
}

// Returns the rings if all pairs are links of rings of three or more, each from its lowest number.
std::vector<std::vector<int>> rings_of(const Pairs& pairs) {
  std::map<int, int> next;
  std::set<int> takers;
  for (const auto& [giver, taker] : pairs)
    if (!next.emplace(giver, taker).second || !takers.insert(taker).second) return {};
  std::vector<std::vector<int>> rings;
  while (!next.empty()) {
    std::vector<int>& ring = rings.emplace_back();
    for (auto at = next.begin(); at != next.end(); at = next.find(ring.back())) {
      if (ring.empty()) ring.push_back(at->first);
      ring.push_back(at->second);
      next.erase(at);
    }
    if (ring.front() != ring.back() || ring.size() < 4) return {};
    ring.pop_back();
  }
  return rings;
}

std::vector<NodeCircle> circles_of(const Plan& plan, const Topology& topology) {
  const Exchange all = exchange_of(plan);
  std::vector<NodeCircle> circles;
  if (plan.ranks() <= int(kMostNodes)) {
    NodeCircle& circle = circles.emplace_back();
    circle.exchange = all;
    circle.host = topology.host_of_rank();
    for (int rank = 0; rank < plan.ranks(); ++rank) circle.names.push_back(fmt::format("{}", rank));
    return circles;
  }
  const std::vector<int> hosts = topology.host_of_rank(), first = topology.ranks_of_host(0);
  if (topology.hosts.size() > 1) {
    const auto host_of = [&](int rank) { return hosts[std::size_t(rank)]; };
    NodeCircle& circle = circles.emplace_back("hosts", std::vector<std::string>{},
                                              Exchange{renumbered(all.messages, host_of), {}},
                                              std::vector<int>(topology.hosts.size(), 0));
    for (const auto& host : topology.hosts) circle.names.push_back(host.name);
  }
  if (first.size() > 1) {
    const auto index = [&](int rank) {
      const auto found = std::find(first.begin(), first.end(), rank);
      return found == first.end() ? -1 : int(found - first.begin());
    };
    NodeCircle& circle = circles.emplace_back(
        "ranks of " + topology.hosts[0].name, std::vector<std::string>{},
        Exchange{{}, renumbered(all.memory, index)}, std::vector<int>(first.size(), 0));
    for (const int rank : first) circle.names.push_back(fmt::format("{}", rank));
  }
  return circles;
}

// Returns whether only the arrows of the first node are drawn.
bool crowded(const NodeCircle& circle) {
  return circle.names.size() > kMostNodes && rings_of(circle.exchange.all()).empty();
}

void draw_arrows(Svg& svg, const NodeCircle& circle, const Pairs& pairs,
                 const std::vector<SvgPoint>& at, double gap, const char* color) {
  for (const auto& [giver, taker] : pairs) {
    const bool both = pairs.contains({taker, giver});
    if (both && taker < giver) continue;  // drawn with the other direction
    if (crowded(circle) && giver != 0 && taker != 0) continue;
    const SvgPoint a = at[std::size_t(giver)], b = at[std::size_t(taker)];
    const double part = gap / std::hypot(b.x - a.x, b.y - a.y);
    const SvgPoint shift{(b.x - a.x) * part, (b.y - a.y) * part};
    svg.arrow({a.x + shift.x, a.y + shift.y}, {b.x - shift.x, b.y - shift.y}, both, color,
              fmt::format("{} {} {}", circle.names[std::size_t(giver)], both ? "and" : "to",
                          circle.names[std::size_t(taker)]));
  }
}

// Draws the circle with its nodes in the order of a ring, if one ring has them all. Returns the
// corner opposite to `corner`.
SvgPoint draw_circle(Svg& svg, const NodeCircle& circle, SvgPoint corner) {
  const std::size_t count = circle.names.size();
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (const auto rings = rings_of(circle.exchange.all());
      rings.size() == 1 && rings[0].size() == count)
    order = rings[0];
  // Names stand beside the nodes if one does not fit into its node.
  const bool beside =
      std::any_of(circle.names.begin(), circle.names.end(), [](auto& n) { return n.size() > 3; });
  std::vector<double> place;  // along the circle
  double places = 0;
  for (std::size_t i = 0; i < count; ++i) {
    place.push_back(places);
    const auto host = [&](std::size_t at) { return circle.host[std::size_t(order[at % count])]; };
    places += host(i) == host(i + 1) ? 1 : 1 + kHostGap;
  }
  const double radius = std::clamp(7.2 * places, 40.0, 150.0);
  const double node = std::min(10.0, 2 * radius / places), margin = beside ? 90 : 16;
  const double names_at = beside ? radius + node + 6 : radius;
  const SvgPoint center{corner.x + margin + radius,
                        corner.y + radius + (circle.title.empty() ? 16 : 32)};
  const auto from_center = [&](double angle, double distance) {
    return SvgPoint{center.x + distance * std::cos(angle), center.y + distance * std::sin(angle)};
  };
  // The first node is on the top; of two, it is on the left.
  const auto angle_of = [&](std::size_t i) {
    return std::numbers::pi * (2 * place[i] / places - (count == 2 ? 1.0 : 0.5));
  };
  std::vector<SvgPoint> at(count);
  for (std::size_t i = 0; i < count; ++i)
    at[std::size_t(order[i])] = from_center(angle_of(i), radius);
  if (!circle.title.empty()) svg.text({corner.x, corner.y + 10}, circle.title, "fill=\"#666\"");
  draw_arrows(svg, circle, circle.exchange.memory, at, node + 1, kMemoryColor);
  draw_arrows(svg, circle, circle.exchange.messages, at, node + 1, kMessageColor);
  for (std::size_t i = 0; i < count; ++i) {
    svg.dot(from_center(angle_of(i), radius), node, "fill=\"#c8d4e4\" stroke=\"#4472a8\"");
    const SvgPoint name = from_center(angle_of(i), names_at);
    const double side = beside ? std::cos(angle_of(i)) : 0;
    svg.text({name.x, name.y + 4}, circle.names[std::size_t(order[i])],
             side < -0.2  ? "text-anchor=\"end\""
             : side > 0.2 ? "text-anchor=\"start\""
                          : "text-anchor=\"middle\"");
  }
  return {center.x + radius + margin, center.y + radius + 16};
}

std::string rings_text(const NodeCircle& circle, const Pairs& pairs) {
  const auto rings = rings_of(pairs);
  std::string words;
  for (std::size_t i = 0; i < std::min(rings.size(), kMostRings); ++i) {
    words += i > 0 ? "; " : rings.size() == 1 ? "round the ring " : "round the rings ";
    for (const int node : rings[i]) words += circle.names[std::size_t(node)] + " > ";
    words += circle.names[std::size_t(rings[i][0])];
  }
  if (rings.size() > kMostRings) words += fmt::format("; {} more rings", rings.size() - kMostRings);
  if (words.size() <= kMostRingLetters) return words;
  return words.substr(0, words.rfind(" > ", kMostRingLetters)) + " > ..";
}

// Explains the arrows, with the order of each ring. Returns the lower edge.
double explain_arrows(Svg& svg, const std::vector<NodeCircle>& circles, SvgPoint at) {
  svg.text(at, "an arrow goes from the rank that gives numbers to the rank that takes them:");
  const auto explain = [&](Pairs Exchange::*pairs, const char* color, const char* words) {
    if (std::all_of(circles.begin(), circles.end(),
                    [&](const NodeCircle& circle) { return (circle.exchange.*pairs).empty(); }))
      return;
    at.y += 20;
    svg.arrow({at.x, at.y - 4}, {at.x + 26, at.y - 4}, false, color, words);
    svg.text({at.x + 34, at.y}, words);
    for (const NodeCircle& circle : circles)  // rings of both kinds are named below
      if (rings_of(circle.exchange.all()).empty())
        if (const auto rings = rings_text(circle, circle.exchange.*pairs); !rings.empty())
          svg.text({at.x + 34, at.y += 16}, rings);
  };
  explain(&Exchange::memory, kMemoryColor, "through the memory of one host");
  explain(&Exchange::messages, kMessageColor, "in a message to another host");
  for (const NodeCircle& circle : circles) {
    if (const auto rings = rings_text(circle, circle.exchange.all()); !rings.empty())
      svg.text({at.x, at.y += 20}, rings);
    if (crowded(circle))
      svg.text({at.x, at.y += 20}, fmt::format("only the arrows of {} are drawn", circle.names[0]));
  }
  return at.y;
}

}  // namespace

double draw_exchange(Svg& svg, const Plan& plan, const Topology& topology, double top) {
  std::vector<NodeCircle> circles = circles_of(plan, topology);
  std::erase_if(circles, [](const NodeCircle& circle) {
    return circle.exchange.messages.empty() && circle.exchange.memory.empty();
  });
  if (circles.empty()) return top;
  SvgPoint corner{20, top};
  double bottom = top;
  for (const NodeCircle& circle : circles) {
    const SvgPoint opposite = draw_circle(svg, circle, corner);
    corner.x = opposite.x + 24;
    bottom = std::max(bottom, opposite.y);
  }
  return std::max(bottom, explain_arrows(svg, circles, {corner.x, top + 20}));
}

}  // namespace lockstep::tools
