// SPDX-License-Identifier: MIT
// The ring of Baidu 2017, after Patarasuk and Yuan 2009, among parties that may each act for
// several ranks of a host.
//
// The n parties form a ring and pass a range around it, cut into n chunks. In round k
// (0 <= k < 2n - 2) the party at position p passes chunk p - k to its successor. It takes chunk
// p - k - 1 from its predecessor (all modulo n):
//   before round 0   chunk p = the sum over its group
//   round k < n - 1  chunk p - k - 1 = the sum over its group + the chunk taken; in the last of
//                    these rounds it is the whole sum, which goes into all of the group
//   round k > n - 2  the chunk taken is a whole sum: it is passed on, then copied into the others
// So the stages are fused. The numbers of a host are added when a chunk is sent, or when something
// is added to it. Each number is read once from each rank of a group and written once into each,
// besides the ring's own traffic.
//
// An edge between hosts is a message. It is received in place, or into scratch if it is to be
// added. The receive of round k + 1 is posted before round k waits, so that early messages go
// straight to their place. This takes two alternating chunks of scratch. In the all-gather that
// place was sent from in round k + 2 - n, which has completed by then; with two parties that is
// round k itself. A chunk that is passed on is posted before anything else is done with it, so that
// both directions of the wire are busy.
//
// An edge within a host is a plain read of the predecessor's memory after the predecessor arrived.
// A party that is read arrives once before its first walk. A party with such an edge also arrives
// after each chunk that it took; the last of these arrivals concerns only its predecessor. A read
// needs no acknowledgment before the chunk is overwritten: the new value is the whole sum, which
// contains what was read. But a party ends only when its successor has taken its last chunk.
//
// If sums travel rounded (Request::wire), each partial sum is rounded, too. Its receiver adds it to
// its own in full precision. The whole sum is rounded where it is first known, before any other
// rank has it, so it travels on without loss. An update uses the unrounded sum, and new weights
// travel unrounded.
//
// Both sides skip empty chunks. If n divides S, each party passes 2 (n - 1) / n S elements and
// takes as many, in 2 (n - 1) rounds.
#include "collectives/algorithms/circle.h"

#include <algorithm>
#include <array>

namespace lockstep::collectives {
namespace {

// Chunks of a range, with prefix sums that count the non-empty ones in any stretch of the circle.
class Chunks {
 public:
  Chunks(Range range, int parts, int rotation) : range_(range), parts_(parts), rotation_(rotation) {
    before_.push_back(0);
    for (int i = 0; i < parts; ++i) before_.push_back(before_.back() + !(*this)[i].empty());
  }
  Range operator[](int index) const { return slice(range_, wrap(index + rotation_), parts_); }
  // Returns the number of non-empty chunks among `count` chunks from `first` on.
  int filled(int first, int count) const {
    const int begin = wrap(first), whole = count / parts_, end = begin + count % parts_;
    const auto before = [&](int i) { return before_[std::size_t(i)]; };
    const int rest = end <= parts_ ? before(end) - before(begin)
                                   : before(parts_) - before(begin) + before(end - parts_);
    return whole * before(parts_) + rest;
  }
  std::size_t largest() const {
    std::size_t most = 0;
    for (int i = 0; i < parts_; ++i) most = std::max(most, (*this)[i].size());
    return most;
  }

 private:
  int wrap(int index) const { return (index % parts_ + parts_) % parts_; }
  Range range_;
  int parts_, rotation_;
  std::vector<int> before_;
};

}  // namespace

Circle::Circle(const Request& request, std::vector<Party> parties)
    : request_(request), parties_(std::move(parties)) {}

const Party& Circle::at(int position) const {
  const int n = parties();
  return parties_[std::size_t((position % n + n) % n)];
}

bool Circle::within(int position) const {
  const auto host = [&](int p) { return request_.host[std::size_t(at(p).rank)]; };
  return parties() > 1 && host(position) == host(position + 1);
}

std::size_t Circle::scratch(Range range) const {
  bool messages = false;
  for (int position = 0; position < parties(); ++position)
    messages |= parties() > 1 && !within(position);
  // With two parties, each adds only one received chunk.
  if (!messages) return 0;
  return std::size_t(std::min(parties() - 1, 2)) * Chunks(range, parties(), 0).largest();
}

class Circle::Walk {
 public:
  Walk(const Circle& circle, int position, Range range, const Place& place, Lane& lane)
      : request_(circle.request_),
        result_(request_.update ? Space::kWeight : request_.space),
        n_(circle.parties()),
        position_(position),
        me_(circle.at(position).rank),
        before_(circle.at(position - 1).rank),
        next_(circle.at(position + 1).rank),
        before_arrives_(circle.rounds() - (circle.within(position - 2) ? 0 : 1)),
        reads_(circle.within(position - 1)),
        is_read_(circle.within(position)),
        group_(circle.at(position).group),
        range_(range),
        chunks_(range, n_, request_.rotation),
        place_(place),
        lane_(lane),
        posts_(std::size_t(circle.rounds())) {
    others_ = group_;
    std::erase(others_, me_);
    scratch_ = {place.scratch, place.scratch + chunks_.largest()};
  }

  void operator()() {
    if (n_ == 1) return add(range_, {}, true);
    receive(0);
    if (group_.size() > 1) add(passed(0), {}, false);
    if (is_read_ && place_.walks == 0) lane_.push_back(arrive());
    send(0);
    for (int round = 0; round < rounds(); ++round) {
      if (n_ > 2) receive(round + 1);
      wait_for(post(round).receive);
      if (n_ == 2 && round == 0) wait_for(post(0).send), receive(1);
      take(round);
      send(round + 1);
      if (round >= n_ - 1 && !reads_) copy(taken(round), me_, others_);
      wait_for(post(round).send);
    }
  }

  // Returns how often the party at `position` arrives in a walk before it takes a chunk in this
  // round, not counting its first arrival.
  static int arrivals(const Chunks& chunks, int position, int round) {
    return chunks.filled(position - round, round);
  }

 private:
  struct Posts {
    int send = -1, receive = -1;
  };
  int rounds() const { return int(posts_.size()); }
  Posts& post(int round) { return posts_[std::size_t(round)]; }
  Range taken(int round) const { return chunks_[position_ - round - 1]; }
  Range passed(int round) const { return chunks_[position_ - round]; }

  void receive(int round) {
    if (reads_ || round >= rounds() || taken(round).empty()) return;
    const Range in = taken(round);
    const Operand to = round < n_ - 1 ? scratch(round) : Operand{me_, result_, in.begin};
    post(round).receive = int(lane_.size());
    lane_.push_back(post_receive(in.size(), to, before_, wire(round)));
  }
  void send(int round) {
    if (is_read_ || round >= rounds() || passed(round).empty()) return;
    const Range out = passed(round);
    post(round).send = int(lane_.size());
    lane_.push_back(post_send(out.size(), {me_, space(round), out.begin}, next_, wire(round)));
  }
  void wait_for(int& post) {
    if (post >= 0) lane_.push_back(wait(post));
    post = -1;
  }
  // Returns the space of the chunk that this round passes: of partial sums first, then of results.
  Space space(int round) const { return round < n_ - 1 ? request_.space : result_; }
  // Returns the type in which this round's chunk travels. New weights travel unrounded.
  std::optional<DType> wire(int round) const {
    return round < n_ - 1 || !request_.update ? wire_of_sums(request_) : std::nullopt;
  }
  Operand scratch(int round) const {
    return {me_, Space::kScratch, scratch_[std::size_t(round % 2)]};
  }

  // Takes a chunk: from a message, or from the predecessor's memory after the predecessor arrived.
  // The predecessor's own numbers are ready before its first walk.
  void take(int round) {
    const Range in = taken(round);
    if (in.empty()) return;
    if (reads_ && (round > 0 || place_.walks == 0))
      lane_.push_back(await(
          {before_}, 1 + place_.walks * before_arrives_ + arrivals(chunks_, position_ - 1, round),
          place_.lane));
    const Operand theirs = reads_ ? Operand{before_, space(round), in.begin} : scratch(round);
    if (round < n_ - 1) add(in, {theirs}, round == n_ - 2);
    if (round >= n_ - 1 && reads_) copy(in, before_, group_);
    if (reads_ || (is_read_ && round + 1 < rounds())) lane_.push_back(arrive());
  }
  // Adds the group's numbers and the chunk taken into this rank, or into the group if the sum is
  // whole.
  void add(Range range, std::vector<Operand> theirs, bool whole) {
    if (range.empty()) return;
    std::vector<Operand> from = everywhere(group_, request_.space, range.begin);
    from.insert(from.end(), theirs.begin(), theirs.end());
    const bool update = whole && request_.update;
    if (from.size() == 1 && !update) return;
    std::vector<Operand> to = whole ? everywhere(group_, result_, range.begin)
                                    : everywhere({me_}, request_.space, range.begin);
    Step step = reduce(range.size(), std::move(from), std::move(to),
                       update ? Epilogue::kUpdate : Epilogue::kNone);
    if (whole && !update) finish_sum(step, request_);
    lane_.push_back(std::move(step));
  }
  void copy(Range range, int from, const std::vector<int>& to) {
    if (range.empty() || to.empty()) return;
    lane_.push_back(
        reduce(range.size(), {{from, result_, range.begin}}, everywhere(to, result_, range.begin)));
  }

  const Request& request_;
  Space result_;                           // holds whole sums or updated weights
  int n_, position_, me_, before_, next_;  // ranks: own, predecessor, successor
  int before_arrives_;                     // predecessor's arrivals per walk, if it is read
  bool reads_, is_read_;
  const std::vector<int>& group_;
  Range range_;
  Chunks chunks_;
  const Place& place_;
  Lane& lane_;
  std::vector<int> others_;
  std::array<std::size_t, 2> scratch_{};
  std::vector<Posts> posts_;  // by round
};

void Circle::walk(Lane& lane, int position, Range range, const Place& place) const {
  Walk(*this, position, range, place, lane)();
}

void Circle::end(Lane& lane, int position, Range last, const Place& place) const {
  if (!within(position)) return;
  const int first = within(position + 1) ? 1 : 0;
  const int taken =
      Walk::arrivals(Chunks(last, parties(), request_.rotation), position + 1, rounds());
  lane.push_back(
      await({at(position + 1).rank}, first + (place.walks - 1) * rounds() + taken, place.lane));
}

}  // namespace lockstep::collectives
