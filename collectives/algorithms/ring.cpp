// SPDX-License-Identifier: MIT
// The ring of Baidu 2017, after Patarasuk and Yuan 2009, over any hosts.
//
// The n ranks stand in a circle, those of a host side by side: so for H > 1 hosts exactly H edges
// of the circle are between hosts. The subject is cut into two segments, each of which goes round
// in a lane of its own, so that one is under way while the other is added. A segment is cut into n
// chunks. In round k (0 <= k < 2n - 2) the rank at position p passes chunk p - k to its successor
// and takes chunk p - k - 1 from its predecessor (all modulo n). In the first n - 1 rounds, the
// reduce-scatter, it adds what it takes to its own; then position p holds the whole sum of chunk p
// + 1. In the last n - 1 rounds, the all-gather, it replaces its own by what it takes.
//
// An edge between hosts is a message: send and receive are both posted before either is waited for,
// so that both directions of the wire are busy. An edge within a host is a plain read of the
// predecessor's memory, after it has arrived. A rank arrives once at its beginning and once after
// each chunk that it took. Nobody needs to acknowledge a read before the chunk is overwritten,
// since what overwrites it is the whole sum, which contains what was read; but a rank ends only
// when its successor has taken its last chunk.
//
// Empty chunks (S small) are left out by both sides. Of each rank, with n | S: 2 (n - 1) / n S
// elements are sent and as many taken, in 2 (n - 1) rounds.
#include <algorithm>
#include <array>

#include "collectives/algorithms/steps.h"
#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

constexpr int kSegments = 2;

// One segment of a request, in positions of the circle.
class Circle {
 public:
  Circle(const Request& request, int segment)
      : request_(request),
        order_(all_ranks(request)),
        segment_(slice(request.subject, segment, kSegments)) {
    std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return host(a) < host(b); });
  }
  int ranks() const { return int(order_.size()); }
  int rounds() const { return 2 * (ranks() - 1); }
  int at(int position) const { return order_[std::size_t(wrap(position))]; }
  Range chunk(int index) const { return slice(segment_, wrap(index + request_.turn), ranks()); }
  Range taken(int position, int round) const { return chunk(position - round - 1); }
  Range passed(int position, int round) const { return chunk(position - round); }
  // Is the edge from this position to the next one within a host?
  bool within(int position) const { return host(at(position)) == host(at(position + 1)); }
  std::size_t largest_chunk() const {
    std::size_t most = 0;
    for (int index = 0; index < ranks(); ++index) most = std::max(most, chunk(index).size());
    return most;
  }
  // How often the rank at a position has arrived before it takes a chunk in this round.
  int arrivals(int position, int round) const {
    int count = 1;
    for (int k = 0; k < round; ++k) count += !taken(position, k).empty();
    return count;
  }

 private:
  int host(int rank) const { return request_.host[std::size_t(rank)]; }
  int wrap(int position) const {
    const int n = ranks();
    return (position % n + n) % n;
  }
  const Request& request_;
  std::vector<int> order_;
  Range segment_;
};

// The lane of the rank at `position`. `scratch` is where it receives what it adds.
Lane ring_lane(const Request& request, const Circle& circle, int position, int segment,
               std::size_t scratch) {
  const int n = circle.ranks(), me = circle.at(position);
  const int before = circle.at(position - 1), next = circle.at(position + 1);
  const bool reads = circle.within(position - 1), is_read = circle.within(position);
  Lane lane;
  if (is_read) lane.push_back(arrive());
  for (int round = 0; round < circle.rounds(); ++round) {
    const bool gather = round >= n - 1;
    const Range in = circle.taken(position, round), out = circle.passed(position, round);
    const Operand mine{me, request.space, in.begin};
    Operand other{before, request.space, in.begin};
    int received = -1, sent = -1;
    if (!reads && !in.empty()) {
      other = {me, Space::kScratch, scratch};
      received = int(lane.size());
      lane.push_back(post_receive(in.size(), gather ? mine : other, before));
    }
    if (!is_read && !out.empty()) {
      sent = int(lane.size());
      lane.push_back(post_send(out.size(), {me, request.space, out.begin}, next));
    }
    if (received >= 0) lane.push_back(wait(received));
    if (!in.empty()) {
      if (reads) lane.push_back(await({before}, circle.arrivals(position - 1, round), segment));
      if (reads && gather) lane.push_back(reduce(in.size(), {other}, {mine}));
      if (!gather) lane.push_back(reduce(in.size(), {mine, other}, {mine}));
      if (request.mean && round == n - 2) {
        lane.back().epilogue = Epilogue::kScale;
        lane.back().scale = 1.0 / n;
      }
      if (is_read || reads) lane.push_back(arrive());
    }
    // What is sent is another chunk than what is added: the wire works meanwhile.
    if (sent >= 0) lane.push_back(wait(sent));
  }
  if (is_read) {
    // My successor has taken its last chunk. It arrives at its beginning only where it is read.
    const int taken = circle.arrivals(position + 1, circle.rounds()) - 1;
    const int first = circle.within(position + 1) ? 1 : 0;
    lane.push_back(await({next}, first + taken, segment));
  }
  return lane;
}

}  // namespace

Plan ring_all_reduce(const Request& request) {
  engine::require(!request.squares, "{}: a ring leaves no squares; add local_squares after it",
                  request.name);
  Plan plan = empty_plan(request, "ring", kSegments);
  if (plan.ranks() == 1) return plan;
  std::size_t scratch = request.scratch;
  for (int segment = 0; segment < kSegments; ++segment) {
    const Circle circle(request, segment);
    const std::size_t most = circle.largest_chunk();
    if (most == 0) continue;
    for (int position = 0; position < plan.ranks(); ++position)
      plan.lanes[std::size_t(circle.at(position))][std::size_t(segment)] =
          ring_lane(request, circle, position, segment, scratch);
    scratch += most;
  }
  return plan;
}

std::size_t ring_scratch(const Request& request) {
  std::size_t elements = 0;
  for (int segment = 0; segment < kSegments; ++segment) {
    const Circle circle(request, segment);
    bool messages = false;
    for (int position = 0; position < circle.ranks(); ++position)
      messages |= circle.ranks() > 1 && !circle.within(position);
    if (messages) elements += circle.largest_chunk();
  }
  return elements;
}

}  // namespace lockstep::collectives
