// SPDX-License-Identifier: MIT
#include "tools/plan_picture.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <tuple>

#include "collectives/cost/planner.h"
#include "collectives/cost/simulator.h"
#include "collectives/cost/size_rules.h"

namespace lockstep::tools {
namespace {

using collectives::Action;
using collectives::Activity;
using collectives::LinkClass;
using collectives::time_text;
using collectives::Topology;

constexpr int kPictureWidth = 1120, kLeft = 90, kRight = 20;
constexpr int kMostHosts = 8, kMostSquares = 16, kMostRanks = 32;  // upper bounds of the drawing
constexpr double kLeastGap = 0.4;  // pixels; nearer bars of a kind are joined

std::string xml_text(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else if (static_cast<unsigned char>(c) >= 32) {
      safe += c;
    }
  }
  return safe;
}

class Picture {
 public:
  void text(double x, double y, const std::string& words, const char* more = "") {
    fmt::format_to(std::back_inserter(body_), "<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x,
                   y, more, xml_text(words));
  }
  void box(double x, double y, double width, double height, const char* look) {
    fmt::format_to(std::back_inserter(body_),
                   "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" {}/>\n", x,
                   y, width, height, look);
  }
  void line(double x1, double y1, double x2, double y2, const char* look) {
    fmt::format_to(std::back_inserter(body_),
                   "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                   x2, y2, look);
  }
  // Draws an arc between two points of equal height, with its top `rise` above them.
  void arc(double x1, double x2, double y, double rise, const char* look, double width) {
    fmt::format_to(std::back_inserter(body_),
                   "<path d=\"M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\" "
                   "stroke-width=\"{:.1f}\" {}/>\n",
                   x1, y, (x1 + x2) / 2, y - 2 * rise, x2, y, width, look);
  }
  std::string finish(double height) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" viewBox=\"0 0 "
        "{0} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
        kPictureWidth, height, body_);
  }

 private:
  std::string body_;
};

const char* look_of(Action action) {
  if (action == Action::kReduce) return "fill=\"#4472a8\"";
  if (action == Action::kPostSend) return "fill=\"#d9822b\"";
  return "fill=\"#5a9e50\"";
}

// Draws the hosts side by side, on one wire. Returns the lower edge.
double draw_cluster(Picture& picture, const Topology& topology, double top) {
  const int hosts = int(topology.hosts.size()), shown = std::min(hosts, kMostHosts);
  const double step = double(kPictureWidth - kRight - 20) / kMostHosts, wire = top + 96;
  for (int h = 0; h < shown; ++h) {
    const double x = 20 + h * step;
    const auto& host = topology.hosts[std::size_t(h)];
    const std::vector<int> ranks = topology.ranks_of_host(h);
    picture.box(x, top, step - 12, 74, "fill=\"#f4f4f0\" stroke=\"#888\" rx=\"4\"");
    picture.text(x + 6, top + 14, host.name, "font-weight=\"bold\"");
    picture.text(x + step - 18, top + 14, std::string(name(host.costs.link)),
                 "text-anchor=\"end\" fill=\"#666\"");
    for (int i = 0; i < std::min(int(ranks.size()), kMostSquares); ++i)
      picture.box(x + 6 + (i % 8) * 13.5, top + 22 + (i / 8) * 14, 11, 11,
                  "fill=\"#c8d4e4\" stroke=\"#4472a8\"");
    picture.text(x + 6, top + 66,
                 ranks.size() == 1 ? fmt::format("rank {}", ranks[0])
                                   : fmt::format("ranks {} to {}", ranks.empty() ? 0 : ranks[0],
                                                 ranks.empty() ? 0 : ranks.back()));
    if (hosts > 1)
      picture.line(x + step / 2 - 6, top + 74, x + step / 2 - 6, wire, "stroke=\"#d9822b\"");
  }
  if (hosts == 1) return top + 84;
  picture.line(20, wire, kPictureWidth - kRight, wire, "stroke=\"#d9822b\" stroke-width=\"2\"");
  picture.text(20, wire + 15,
               fmt::format("between hosts: {:.3g} GB/s each way, {}{}",
                           topology.wire.bandwidth / 1e9, time_text(topology.wire.latency),
                           hosts > shown ? fmt::format("; {} more hosts", hosts - shown) : ""));
  return wire + 24;
}

// Draws the devices of one host, one per rank, and an arc for each direct link; faster links are
// thicker. Returns the lower edge.
double draw_devices(Picture& picture, const collectives::HostCosts& costs, int devices,
                    double top) {
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
    picture.arc(middle(link.a), middle(link.b), row, kRise * std::abs(link.a - link.b),
                "stroke=\"#8a5fb0\" class=\"link\"", 3 * link.bandwidth / fastest);
  for (int device = 0; device < devices; ++device) {
    picture.box(middle(device) - kSide / 2, row, kSide, kSide,
                "fill=\"#c8d4e4\" stroke=\"#4472a8\" rx=\"3\"");
    picture.text(middle(device), row + 16, fmt::format("{}", device), "text-anchor=\"middle\"");
  }
  std::string words = "between devices: ";
  if (!costs.links.empty())
    words += fmt::format("{} direct links of up to {:.3g} GB/s each way, thicker is faster; ",
                         costs.links.size(), fastest / 1e9);
  words += fmt::format("{:.3g} GB/s in and out of each{}", costs.port / 1e9,
                       costs.links.empty() ? "" : " where there is none");
  picture.text(20, row + kSide + 18, words);
  return row + kSide + 28;
}

// Draws the lanes of each rank as bars. Returns the lower edge.
double draw_time(Picture& picture, const collectives::Simulation& run, double top) {
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
  for (int tick = 0; tick <= 5; ++tick) {
    const double at = run.seconds * tick / 5, x = kLeft + at * scale;
    picture.line(x, top, x, top + 14 + ranks * band, "stroke=\"#ddd\"");
    picture.text(x, top + 9, time_text(at),
                 tick == 5 ? "text-anchor=\"end\" fill=\"#666\"" : "fill=\"#666\"");
  }
  top += 16;
  for (int rank = 0; rank < ranks; ++rank)
    if (band >= 11 || rank % 4 == 0)
      picture.text(kLeft - 6, top + rank * band + std::min(band, 12.0),
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
      picture.box(kLeft + begin * scale, y, std::max((end - begin) * scale, 0.3),
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
  const collectives::Simulation run =
      simulate(algorithm->make(request), part, {.bytes = 0, .record = true});

  Picture picture;
  picture.text(20, 24,
               fmt::format("{}: all-reduce of {}, {}", source, collectives::size_text(choice.bytes),
                           choice.algorithm),
               "font-size=\"16\" font-weight=\"bold\"");
  picture.text(20, 42,
               fmt::format("{} predicted, because {}", time_text(choice.seconds), choice.reason));
  double y = draw_cluster(picture, topology, 56) + 20;
  if (topology.hosts.size() == 1)
    y = draw_devices(picture, topology.hosts[0].costs, int(topology.ranks.size()), y - 10) + 16;
  std::string what =
      "what each rank does; a row is a lane, whose steps come one after another, beside other "
      "lanes";
  if (hosts < int(topology.hosts.size()))
    what +=
        fmt::format("; the same on the first {} hosts alone, {}", hosts, time_text(run.seconds));
  picture.text(20, y, what, "font-weight=\"bold\"");
  double x = kPictureWidth - 300;
  for (const auto& [action, word] :
       {std::pair(Action::kReduce, "reduces"), std::pair(Action::kPostSend, "sends"),
        std::pair(Action::kPostReceive, "receives")}) {
    picture.box(x, y - 9, 10, 10, look_of(action));
    picture.text(x + 14, y, word);
    x += 90;
  }
  y = draw_time(picture, run, y + 10);
  return picture.finish(y + 16);
}

}  // namespace lockstep::tools
