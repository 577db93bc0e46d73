// SPDX-License-Identifier: MIT
// The ring of Baidu 2017, after Patarasuk and Yuan 2009, of parties that may each act for several
// ranks of a host.
//
// The n parties stand in a circle and pass a range round. It is cut into n chunks. In round k
// (0 <= k < 2n - 2) the party at position p passes chunk p - k to its successor and takes chunk
// p - k - 1 from its predecessor (all modulo n):
//   before round 0   chunk p = the sum over my group
//   round k < n - 1  chunk p - k - 1 = the sum over my group + what I take; in the last of these
//                    rounds, that is the whole sum, which goes into all of the group
//   round k > n - 2  what I take is a whole sum: it is passed on, then copied into the others
// So there are no stages one after the other: what a reduction inside a host would have written
// first is added when it is sent, or when something is added to it, and each number is read once
// from each rank of a group and written once into each, besides what the ring itself does.
//
// An edge between hosts is a message. It is received where it stays, or into scratch where it is
// added. The receive of round k + 1 is posted before round k waits, so that what comes early goes
// straight to its place: two chunks of scratch, in turn. In the gather that place was sent from in
// round k + 2 - n, which is through by then; but of two parties it is round k itself. What is
// passed on is posted before anything else is done with it: both directions of the wire are busy.
//
// An edge within a host is a plain read of the predecessor's memory, after it has arrived. A party
// with such an edge arrives once before its first walk where it is read, and after each chunk that
// it took; but the last one only its predecessor wants to know about. Nobody needs to acknowledge a
// read before the chunk is overwritten, since what overwrites it is the whole sum, which contains
// what was read; but a party ends only when its successor has taken its last chunk.
//
// Where sums travel rounded (Request::wire), so does each part of a sum, and who takes it adds it
// to its own in full. The whole sum is rounded where it is first known, before anybody has it: so
// it travels on without loss. An update takes it unrounded, and new weights travel as they are.
//
// Empty chunks are left out by both sides. Of each party, with n | S: 2 (n - 1) / n S elements are
// passed and as many taken, in 2 (n - 1) rounds.
#include "collectives/algorithms/circle.h"

#include <algorithm>
#include <array>

namespace lockstep::collectives {
namespace {

// How many of the chunks of a range are not empty, in any stretch of the circle.
class Chunks {
 public:
  Chunks(Range range, int parts, int rotation) : range_(range), parts_(parts), rotation_(rotation) {
    before_.push_back(0);
    for (int i = 0; i < parts; ++i) before_.push_back(before_.back() + !(*this)[i].empty());
  }
  Range operator[](int index) const { return slice(range_, wrap(index + rotation_), parts_); }
  // Of `count` chunks from this one on.
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
  // Of two parties each adds one chunk alone.
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

  // How often the party at `position` arrives in a walk before it takes a chunk in this round,
  // besides its first arrival.
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
  // Where what is passed in this round lies: parts of sums, later results.
  Space space(int round) const { return round < n_ - 1 ? request_.space : result_; }
  // New weights travel as they are.
  std::optional<DType> wire(int round) const {
    return round < n_ - 1 || !request_.update ? wire_of_sums(request_) : std::nullopt;
  }
  Operand scratch(int round) const {
    return {me_, Space::kScratch, scratch_[std::size_t(round % 2)]};
  }

  // A chunk that is there: by a message, or in the predecessor's memory when that has arrived. Its
  // own numbers were there when it came to its first walk.
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
  // The numbers of my group, and what I take, into me; or, when that is all, into the group.
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
  Space result_;                           // of whole sums, or what is made of them
  int n_, position_, me_, before_, next_;  // ranks: mine, the predecessor's, the successor's
  int before_arrives_;                     // in a whole walk, where I read the predecessor
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
