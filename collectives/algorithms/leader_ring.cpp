// SPDX-License-Identifier: MIT
// The leaders of a slice, one a host, form a ring. There are no stages one after the other: what a
// direct reduce-scatter inside the host would have written first is added at the moment at which it
// is sent, or in which a message is added to it.
//
// H leaders, at the positions p of the circle, pass one segment round. It is cut into H chunks. In
// round k (0 <= k < 2H - 2) position p passes chunk p - k to its successor and takes chunk p - k -
// 1 from its predecessor (all modulo H):
//   before round 0   chunk p = the sum over the ranks of my host
//   round k < H - 1  chunk p - k - 1 = the sum over the ranks of my host + what is received; in the
//                    last of these rounds that is the whole sum, which goes into all of them
//   round k > H - 2  what is received is a whole sum: it is passed on, then copied into the others
// So a chunk is read once from each rank of a host and written once into each, besides what the
// wire itself reads and writes.
//
// A chunk is received where it stays, or into scratch where it is added. The receive of round k + 1
// is posted before round k waits, so that what comes early goes straight to its place: two chunks
// of scratch, in turn. In the gather that place was sent from in round k + 2 - H, which is through
// by then; but of two hosts it is round k itself. With several segments in flight the wire works
// while this lane adds.
//
// Of each host, with H | S: 2 (H - 1) / H S elements are sent and as many taken, in 2 (H - 1)
// rounds, whatever the number of its ranks. In all: 2 (H - 1) S.
#include <algorithm>
#include <array>
#include <limits>

#include "collectives/algorithms/leader_ring.h"

namespace lockstep::collectives {
namespace {

// One leader's walk with one segment.
class RingWalk {
 public:
  RingWalk(const Request& request, const Leaders& leaders, int slice_index, int host, Range segment,
           std::size_t scratch, Lane& lane)
      : request_(request),
        hosts_(int(leaders.hosts.size())),
        position_(host),
        group_(leaders.hosts[std::size_t(host)]),
        me_(leaders.rank(host, slice_index)),
        before_(leaders.rank(wrap(host - 1), slice_index)),
        next_(leaders.rank(wrap(host + 1), slice_index)),
        segment_(segment),
        lane_(lane),
        posts_(std::size_t(rounds())) {
    const std::size_t most = largest_chunk(request, segment, hosts_);
    scratch_ = {scratch, scratch + most};
    others_ = group_;
    std::erase(others_, me_);
  }

  static std::size_t largest_chunk(const Request&, Range segment, int hosts) {
    std::size_t most = 0;
    for (int i = 0; i < hosts; ++i) most = std::max(most, slice(segment, i, hosts).size());
    return most;
  }

  void operator()() {
    if (hosts_ == 1) return add(segment_, {}, true);
    receive(0);
    if (group_.size() > 1) add(passed(0), {}, false);
    send(0);
    for (int round = 0; round < rounds(); ++round) {
      if (hosts_ > 2) receive(round + 1);
      if (posts_[std::size_t(round)].receive >= 0)
        lane_.push_back(wait(posts_[std::size_t(round)].receive));
      if (hosts_ == 2 && round == 0) through(0), receive(1);
      if (round < hosts_ - 1)
        add(taken(round), {{me_, Space::kScratch, scratch_[std::size_t(round % 2)]}},
            round == hosts_ - 2);
      send(round + 1);
      if (round >= hosts_ - 1) hand_out(taken(round));
      through(round);
    }
  }

 private:
  struct Posts {
    int send = -1, receive = -1;
  };
  int rounds() const { return 2 * (hosts_ - 1); }
  int wrap(int position) const { return (position % hosts_ + hosts_) % hosts_; }
  Range chunk(int index) const { return slice(segment_, wrap(index + request_.turn), hosts_); }
  Range taken(int round) const { return chunk(position_ - round - 1); }
  Range passed(int round) const { return chunk(position_ - round); }

  void receive(int round) {
    if (round >= rounds() || taken(round).empty()) return;
    const Range in = taken(round);
    const Operand to = round < hosts_ - 1
                           ? Operand{me_, Space::kScratch, scratch_[std::size_t(round % 2)]}
                           : Operand{me_, request_.space, in.begin};
    posts_[std::size_t(round)].receive = int(lane_.size());
    lane_.push_back(post_receive(in.size(), to, before_));
  }
  void send(int round) {
    if (round >= rounds() || passed(round).empty()) return;
    const Range out = passed(round);
    posts_[std::size_t(round)].send = int(lane_.size());
    lane_.push_back(post_send(out.size(), {me_, request_.space, out.begin}, next_));
  }
  // What was sent in a round may be overwritten from here on.
  void through(int round) {
    int& post = posts_[std::size_t(round)].send;
    if (post >= 0) lane_.push_back(wait(post));
    post = -1;
  }
  // The numbers of my host, and what was received, into me; or, when that is all, into all.
  void add(Range range, std::vector<Operand> received, bool whole) {
    if (range.empty()) return;
    std::vector<Operand> from = everywhere(group_, request_.space, range.begin);
    from.insert(from.end(), received.begin(), received.end());
    if (from.size() == 1) return;
    const std::vector<int> to = whole ? group_ : std::vector<int>{me_};
    Step step = reduce(range.size(), std::move(from), everywhere(to, request_.space, range.begin));
    if (whole && request_.mean) {
      step.epilogue = Epilogue::kScale;
      step.scale = 1.0 / double(request_.host.size());
    }
    lane_.push_back(std::move(step));
  }
  void hand_out(Range range) {
    if (range.empty() || others_.empty()) return;
    lane_.push_back(reduce(range.size(), {{me_, request_.space, range.begin}},
                           everywhere(others_, request_.space, range.begin)));
  }

  const Request& request_;
  int hosts_, position_;
  const std::vector<int>& group_;  // the ranks of my host, me among them
  int me_, before_, next_;
  Range segment_;
  Lane& lane_;
  std::vector<int> others_;
  std::array<std::size_t, 2> scratch_{};
  std::vector<Posts> posts_;  // by round
};

// Into how many messages a segment is cut. One host sends none: one segment is as good as many.
int parts(const Leaders& leaders) {
  return leaders.hosts.size() == 1 ? std::numeric_limits<int>::max() : int(leaders.hosts.size());
}

std::size_t scratch_of_lane(const Request& request, const Leaders& leaders) {
  const int hosts = int(leaders.hosts.size());
  return lane_scratch(request, leaders, parts(leaders), [&](Range segment) {
    // Of two hosts each adds one chunk alone.
    return std::size_t(std::min(hosts - 1, 2)) * RingWalk::largest_chunk(request, segment, hosts);
  });
}

}  // namespace

Plan leader_ring(const Request& request, std::string name, int most) {
  const Leaders all = leaders(request, most);
  return lead(request, std::move(name), all, parts(all), scratch_of_lane(request, all),
              [&](Lane& lane, int slice, int host, Range segment, std::size_t scratch) {
                RingWalk(request, all, slice, host, segment, scratch, lane)();
              });
}

std::size_t leader_ring_scratch(const Request& request, int most) {
  const Leaders all = leaders(request, most);
  return std::size_t(most_lanes(request, all, parts(all))) * scratch_of_lane(request, all);
}

}  // namespace lockstep::collectives
