// SPDX-License-Identifier: MIT
#include "tools/plan_picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

#include "collectives/cost/planner.h"
#include "collectives/cost/simulator.h"
#include "collectives/cost/size_rules.h"
#include "tools/plan_exchange.h"
#include "tools/svg.h"

namespace lockstep::tools {
namespace {

using collectives::Action;
using collectives::Activity;
using collectives::LinkClass;
using collectives::time_text;
using collectives::Topology;

constexpr std::size_t kReasonColumns = 150;  // characters in a line
constexpr int kPictureWidth = 1120, kLeft = 90, kRight = 20;
constexpr int kMostHosts = 8, kMostSquares = 16, kMostRanks = 32;  // upper bounds of the drawing
constexpr int kMostTimeTicks = 10;
constexpr std::size_t kMostLetters = 15;  // of a host's name in its box
constexpr double kClearly = 0.01;         // part of a time that a reader notices
constexpr double kLeastGap = 0.4;         // pixels; nearer bars of a kind are joined

const char* look_of(Action action) {
  if (action == Action::kReduce) return "fill=\"#4472a8\"";
  if (action == Action::kPostSend) return "fill=\"#d9822b\"";
  return "fill=\"#5a9e50\"";
}

// Draws the hosts side by side, on one wire. Returns the lower edge.
double draw_cluster(Svg& picture, const Topology& topology, double top) {
  const int hosts = int(topology.hosts.size()), shown = std::min(hosts, kMostHosts);
  const double step = double(kPictureWidth - kRight - 20) / kMostHosts, wire = top + 96;
  for (int h = 0; h < shown; ++h) {
    const double x = 20 + h * step;
    const auto& host = topology.hosts[std::size_t(h)];
    const std::vector<int> ranks = topology.ranks_of_host(h);
    picture.box({x, top}, step - 12, 74, "fill=\"#f4f4f0\" stroke=\"#888\" rx=\"4\"");
    const bool fits = host.name.size() <= kMostLetters;
    picture.text({x + 6, top + 14}, fits ? host.name : host.name.substr(0, kMostLetters - 2) + "..",
                 "font-weight=\"bold\"");
    picture.text({x + 6, top + 58}, name(host.costs.link), "fill=\"#666\"");
    for (int i = 0; i < std::min(int(ranks.size()), kMostSquares); ++i)
      picture.box({x + 6 + (i % 8) * 13.5, top + 22 + (i / 8) * 14}, 11, 11,
                  "fill=\"#c8d4e4\" stroke=\"#4472a8\"");
    picture.text({x + 6, top + 70},
                 ranks.size() == 1 ? fmt::format("rank {}", ranks[0])
                                   : fmt::format("ranks {} to {}", ranks.empty() ? 0 : ranks[0],
                                                 ranks.empty() ? 0 : ranks.back()));
    if (hosts > 1)
      picture.line({x + step / 2 - 6, top + 74}, {x + step / 2 - 6, wire}, "stroke=\"#d9822b\"");
  }
  if (hosts == 1) return top + 84;
  picture.line({20, wire}, {kPictureWidth - kRight, wire}, "stroke=\"#d9822b\" stroke-width=\"2\"");
  picture.text({20, wire + 15},
               fmt::format("between hosts: {:.3g} GB/s each way, {}{}",
                           topology.wire.bandwidth / 1e9, time_text(topology.wire.latency),
                           hosts > shown ? fmt::format("; {} more hosts", hosts - shown) : ""));
  return wire + 24;
}

// Draws the devices of one host, one per rank, and an arc for each direct link; faster links are
// thicker. Returns the lower edge.
double draw_devices(Svg& picture, const collectives::HostCosts& costs, int devices, double top) {
  if (costs.link == LinkClass::kMemory || devices > kMostRanks) return top;
  // Pixels; kRise is the height of an arc per device between its ends.
  constexpr double kSide = 24, kRise = 8;
  const double step = double(kPictureWidth - kLeft - kRight) / std::max(devices, 2);
  double fastest = 0, farthest = 0;
  for (const collectives::PeerLink& link : costs.links) {
    fastest = std::max(fastest, link.bandwidth);
    farthest = std::max(farthest, double(std::abs(link.a - link.b)));
  }
  const double row = top + 20 + farthest * kRise;
  const auto middle = [&](int device) { return kLeft + (device + 0.5) * step; };
  for (const collectives::PeerLink& link : costs.links)
    picture.arc({middle(link.a), row}, middle(link.b), kRise * std::abs(link.a - link.b),
                fmt::format("stroke=\"#8a5fb0\" class=\"link\" stroke-width=\"{:.1f}\"",
                            3 * link.bandwidth / fastest));
  for (int device = 0; device < devices; ++device) {
    picture.box({middle(device) - kSide / 2, row}, kSide, kSide,
                "fill=\"#c8d4e4\" stroke=\"#4472a8\" rx=\"3\"");
    picture.text({middle(device), row + 16}, fmt::format("{}", device), "text-anchor=\"middle\"");
  }
  std::string words = "between devices: ";
  if (!costs.links.empty())
    words += fmt::format("{} direct links of up to {:.3g} GB/s each way, thicker is faster; ",
                         costs.links.size(), fastest / 1e9);
  words += fmt::format("{:.3g} GB/s in and out of each{}", costs.port / 1e9,
                       costs.links.empty() ? "" : " where there is none");
  picture.text({20, row + kSide + 18}, words);
  return row + kSide + 28;
}

// Draws the lanes of each rank as bars. Returns the lower edge.
double draw_time(Svg& picture, const collectives::Simulation& run, double top) {
  const int ranks = int(run.ended.size());
  std::map<std::tuple<int, int, Action>, std::vector<Activity>> rows;
  std::map<std::pair<int, int>, int> lanes;  // (rank, lane) with activities: its row
  for (const Activity& activity : run.activities) {
    rows[{activity.rank, activity.lane, activity.action}].push_back(activity);
    lanes[{activity.rank, activity.lane}] = 0;
  }
  std::vector<int> count(std::size_t(ranks), 0);
  for (auto& [lane, place] : lanes) place = count[std::size_t(lane.first)]++;
  const int most = std::max(1, *std::max_element(count.begin(), count.end()));
  const double row = std::clamp(16.0 / most, 3.0, 9.0), band = most * row + 5;
  const double scale = (kPictureWidth - kLeft - kRight) / std::max(run.seconds, 1e-12);
  for (const double at : round_ticks(0, run.seconds, kMostTimeTicks, AxisScale::kLinear)) {
    const double x = kLeft + at * scale;
    picture.line({x, top + 4}, {x, top + 16 + ranks * band}, "stroke=\"#ddd\"");
    const bool inside = x < kPictureWidth - kRight - 40;
    picture.text({x + (inside ? 3 : -3), top + 9}, tick_time(at),
                 inside ? "fill=\"#666\"" : "text-anchor=\"end\" fill=\"#666\"");
  }
  top += 16;
  for (int rank = 0; rank < ranks; ++rank)
    if (band >= 11 || rank % 4 == 0)
      picture.text({kLeft - 6, top + rank * band + (band - 5) / 2 + 4},
                   fmt::format("rank {}", rank), "text-anchor=\"end\"");
  for (auto& [key, bars] : rows) {
    const auto [rank, lane, action] = key;
    std::sort(bars.begin(), bars.end(),
              [](const Activity& a, const Activity& b) { return a.begin < b.begin; });
    // Three thin rows in a lane would be invisible: a reduction fills the lane, messages fill half
    // of it.
    const bool reduce = action == Action::kReduce, send = action == Action::kPostSend;
    const double y = top + rank * band + lanes[{rank, lane}] * row + (reduce || send ? 0 : row / 2);
    for (std::size_t i = 0; i < bars.size();) {
      const double begin = bars[i].begin;
      double end = bars[i].end;
      for (++i; i < bars.size() && (bars[i].begin - end) * scale < kLeastGap; ++i)
        end = std::max(end, bars[i].end);
      picture.box({kLeft + begin * scale, y}, std::max((end - begin) * scale, 0.3),
                  reduce ? row - 1 : row / 2 - 0.5, look_of(action));
    }
  }
  return top + ranks * band;
}

}  // namespace

std::string plan_picture(const std::string& source, const Topology& topology,
                         std::span<const collectives::Algorithm> algorithms,
                         const collectives::Choice& choice) {
  int hosts = int(topology.hosts.size());
  Topology part = topology;
  while (hosts > 1 && part.ranks.size() > kMostRanks) part = topology.first_hosts(hosts /= 2);
  const collectives::Request request =
      collectives::priced_request(part, std::max<std::size_t>(1, choice.bytes));
  const auto algorithm = std::find_if(algorithms.begin(), algorithms.end(),
                                      [&](const auto& a) { return a.name == choice.algorithm; });
  const collectives::Plan plan = algorithm->make(request);
  const collectives::Simulation run = simulate(plan, part, {.bytes = 0, .record = true});

  const std::string where =
      hosts < int(topology.hosts.size()) ? fmt::format(", on the first {} hosts", hosts) : "";

  Svg picture;
  picture.text({20, 24},
               fmt::format("{}: all-reduce of {}, {}", source, collectives::size_text(choice.bytes),
                           choice.algorithm),
               "font-size=\"16\" font-weight=\"bold\"");
  // Timed all-reduces correct what the costs of the steps predict.
  const bool corrected =
      where.empty() && std::abs(run.seconds - choice.seconds) > kClearly * choice.seconds;
  picture.text({20, 42},
               fmt::format("{} predicted{}", time_text(choice.seconds),
                           corrected ? fmt::format(" ({} by the costs of the steps below)",
                                                   time_text(run.seconds))
                                     : ""));
  double y = 60;
  for (std::string_view rest = choice.reason; !rest.empty(); y += 16) {
    const std::size_t end =
        rest.size() <= kReasonColumns ? rest.size() : rest.rfind(' ', kReasonColumns);
    const std::string_view line = rest.substr(0, end);
    picture.text({20, y}, fmt::format("{}{}", y == 60 ? "reason: " : "", line));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
  }
  y = draw_cluster(picture, topology, y - 4) + 20;
  if (topology.hosts.size() == 1)
    y = draw_devices(picture, topology.hosts[0].costs, int(topology.ranks.size()), y - 10) + 16;
  const double exchange = draw_exchange(picture, plan, part, y + 8);
  if (exchange > y + 8) {
    picture.text({20, y}, "which ranks exchange numbers" + where, "font-weight=\"bold\"");
    y = exchange + 26;
  }
  std::string what = "what each rank does" + where;
  if (!where.empty()) what += fmt::format(" alone ({})", time_text(run.seconds));
  what += "; each row is a lane of successive steps";
  picture.text({20, y}, what, "font-weight=\"bold\"");
  double x = kPictureWidth - 300;
  for (const auto& [action, word] :
       {std::pair(Action::kReduce, "reduces"), std::pair(Action::kPostSend, "sends"),
        std::pair(Action::kPostReceive, "receives")}) {
    picture.box({x, y - 9}, 10, 10, look_of(action));
    picture.text({x + 14, y}, word);
    x += 90;
  }
  y = draw_time(picture, run, y + 10);
  return picture.finish(kPictureWidth, y + 16);
}

}  // namespace lockstep::tools
