// SPDX-License-Identifier: MIT
// Halving-doubling (Thakur, Rabenseifner and Gropp 2005) among n parties. With 2^L <= n < 2^(L+1),
// 2^L parties are cores and exchange; each other party, if any, joins the core beside it.
//
// The cores follow from halving the list of parties L times, the larger half first, as a balanced
// tree is halved. One or two parties remain in each part: a core, and one that joins it. On the
// core's host that one is a passenger: the core reads its numbers and stores its result. On another
// host it is an extra, which sends its numbers before and receives the result after.
//
// Halving: in round j (0 <= j < L) core i has the same range as its partner, core i xor 2^j. It
// keeps one half, the lower one if bit j of i is 0, and gives the other to the partner. It takes
// the partner's numbers of its own half and adds them. After L rounds it has the whole sum of its
// part. Doubling reverses the rounds: core i gives its partner of round j what it kept in that
// round, and takes what it gave. The partners of round j have added 2^j adjacent cores each. So
// sums are the balanced tree over the parties for every range.
//
// Recursive doubling: in round j the partners give each other everything, and both add. Both get
// the same bits, since a + b = b + a. On one host the lower one adds and stores into both.
//
// If sums travel rounded (Request::wire), all ranks end with rounded sums: the last round's
// addition rounds them. In halving, the core that takes a part adds it to its own in full
// precision. In recursive doubling both add. So before a round in which some cores send messages,
// all cores round what they have, and keep that. Pairs on one host do so, too, since their sum must
// have the same bits.
//
// Between hosts, give and take are messages. The receive of the next round is posted before this
// round waits. On one host, a core takes by reading the partner's memory after the partner arrived.
// A core arrives when its own numbers are ready and after each round; a passenger arrives once.
// Reads need no acknowledgment: what was read in round j of halving is overwritten only in the same
// round of doubling, for which the partner has arrived. But a core ends only after its partners
// have read.
#include "collectives/algorithms/doubling.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::collectives {

namespace {

// Largest range that is sent whole. Latency dominates such a message, so halving it saves hardly
// any time. Whole ranges take half the rounds.
constexpr std::size_t kWholeBytes = std::size_t(16) << 10;

}  // namespace

Doubling::Doubling(const Request& request, std::vector<Party> parties, Range subject)
    : request_(request),
      parties_(std::move(parties)),
      whole_(subject.size() * engine::size_of(request.dtype) <= kWholeBytes) {
  engine::require(!request.update, "{}: halving and doubling have no place for an update",
                  request.name);
  while (2 << levels_ <= int(parties_.size())) ++levels_;
  add_cores(0, int(parties_.size()), levels_);
}

// Adds the cores of a subtree. Core i is the i-th leaf if the bits of i are read from the root on.
// Rounds go from the leaves up, so the partner of round j differs in bit j.
void Doubling::add_cores(int first, int count, int levels) {
  if (levels > 0) {
    const int half = (count + 1) / 2;
    add_cores(first, half, levels - 1);
    add_cores(first + half, count - half, levels - 1);
    return;
  }
  const Party& party = parties_[std::size_t(first)];
  Core& core = cores_.emplace_back(Core{party.rank, party.group});
  for (int i = 0; i < count; ++i) core_of_.push_back(int(cores_.size()) - 1);
  if (count == 1) return;
  const Party& second = parties_[std::size_t(first) + 1];
  const bool same =
      request_.host[std::size_t(party.rank)] == request_.host[std::size_t(second.rank)];
  (same ? core.passenger : core.extra) = second.rank;
  if (same) core.group.insert(core.group.end(), second.group.begin(), second.group.end());
}

int Doubling::host(int core) const {
  return request_.host[std::size_t(cores_[std::size_t(core)].rank)];
}

bool Doubling::arrives(int core) const {
  if (cores_[std::size_t(core)].passenger >= 0) return true;
  for (int level = 0; level < levels_; ++level)
    if (together(core, core ^ (1 << level))) return true;
  return false;
}

bool Doubling::gives_rounded(int level) const {
  if (!whole_ || level >= levels_ || !wire_of_sums(request_)) return false;
  for (int core = 0; core < int(cores_.size()); ++core)
    if (!together(core, core ^ (1 << level))) return true;
  return false;
}

// Returns the scratch of a walk: first for what an extra sends, then for what each round takes.
std::size_t Doubling::scratch(Range range) const {
  const auto elsewhere = [&](const Party& party) {
    return request_.host[std::size_t(party.rank)] != host(0);
  };
  if (std::none_of(parties_.begin(), parties_.end(), elsewhere)) return 0;
  const bool extras =
      std::any_of(cores_.begin(), cores_.end(), [](const Core& core) { return core.extra >= 0; });
  const std::size_t first = extras ? range.size() : 0;
  if (whole_) return first + std::size_t(levels_) * range.size();
  const auto rounds = [](auto&& self, Range all, int levels) -> std::size_t {
    if (levels == 0 || all.empty()) return 0;
    std::size_t most = 0;
    for (const int half : {0, 1}) {
      const Range keep = slice(all, half, 2);
      most = std::max(most, keep.size() + self(self, keep, levels - 1));
    }
    return most;
  };
  return first + rounds(rounds, range, levels_);
}

// Appends the steps of one core's walk.
class Doubling::Walk {
 public:
  Walk(const Doubling& all, int index, Range range, const Place& place, Lane& lane)
      : all_(all),
        request_(all.request_),
        index_(index),
        core_(all.cores_[std::size_t(index)]),
        range_(range),
        place_(place),
        lane_(lane),
        arrives_(all.arrives(index)) {
    std::size_t scratch = place.scratch + (core_.extra >= 0 ? range.size() : 0);
    for (int level = 0; level < all.levels_; ++level) {
      Round round;
      round.partner = index ^ (1 << level);
      round.rank = all.cores_[std::size_t(round.partner)].rank;
      round.near = all.together(index, round.partner);
      const int half = index >> level & 1;
      const Range before = level == 0 ? range : rounds_.back().keep;
      round.keep = all.whole_ ? range : slice(before, half, 2);
      round.give = all.whole_ ? range : slice(before, 1 - half, 2);
      round.scratch = scratch;
      scratch += round.keep.size();
      rounds_.push_back(round);
    }
  }

  void operator()() {
    if (core_.passenger >= 0 && place_.walks == 0)
      lane_.push_back(await({core_.passenger}, 1, place_.lane));
    if (rounds_.empty()) return add(range_, core_.group, {}, core_.group, true);
    take(0);
    const bool summed = begin();
    if (all_.whole_) {
      exchange();
    } else {
      halve(summed);
      double_back();
    }
    if (core_.extra >= 0) {
      const int sent = send(range_, core_.extra);
      lane_.push_back(wait(sent));
    }
  }

 private:
  struct Round {
    int partner = 0, rank = 0;
    bool near = false;
    Range keep, give;  // of the range that both had
    std::size_t scratch = 0;
    int receive = -1, send = -1;  // the posts of this round
  };
  int rounds() const { return int(rounds_.size()); }
  Round& round(int level) { return rounds_[std::size_t(level)]; }
  Operand at(int rank, Range range) const { return {rank, request_.space, range.begin}; }
  void arrived() {
    if (arrives_) lane_.push_back(arrive());
  }
  // Waits until the partner has completed `gone` rounds of this walk. If it adds nothing before its
  // first round, its own numbers are ready since its first walk.
  void await_partner(const Round& r, int gone) {
    const Core& partner = all_.cores_[std::size_t(r.partner)];
    if (gone == 0 && place_.walks > 0 && partner.group.size() == 1 && partner.extra < 0) return;
    lane_.push_back(await({r.rank}, place_.walks * all_.arrivals() + 1 + gone, place_.lane));
  }
  int send(Range range, int to) {
    lane_.push_back(post_send(range.size(), at(core_.rank, range), to, wire_of_sums(request_)));
    return int(lane_.size()) - 1;
  }
  int receive(Range range, Operand to, int from) {
    lane_.push_back(post_receive(range.size(), to, from, wire_of_sums(request_)));
    return int(lane_.size()) - 1;
  }
  void wait_for(int& post) {
    if (post >= 0) lane_.push_back(wait(post));
    post = -1;
  }
  Operand scratch(const Round& r) const { return {core_.rank, Space::kScratch, r.scratch}; }

  // Adds a range of the ranks `from`, and the operands `other`, into `to`.
  void add(Range range, const std::vector<int>& from, std::vector<Operand> other,
           const std::vector<int>& to, bool last) {
    if (range.empty()) return;
    std::vector<Operand> sources = everywhere(from, request_.space, range.begin);
    sources.insert(sources.end(), other.begin(), other.end());
    if (sources.size() == 1) return;
    Step step =
        reduce(range.size(), std::move(sources), everywhere(to, request_.space, range.begin));
    if (last) finish_sum(step, request_);
    lane_.push_back(std::move(step));
  }

  // Posts the receive of a round of halving or recursive doubling.
  void take(int level) {
    if (level >= rounds()) return;
    Round& r = round(level);
    if (!r.near && !r.keep.empty()) r.receive = receive(r.keep, scratch(r), r.rank);
  }
  void give(int level) {
    Round& r = round(level);
    if (!r.near && !r.give.empty()) r.send = send(r.give, r.rank);
  }

  // Adds what the first round needs: everything, or only what it gives away. Returns whether the
  // halving rounds can skip the group because the rank holds its sum.
  bool begin() {
    const Operand from_extra{core_.rank, Space::kScratch, place_.scratch};
    if (core_.extra >= 0) {
      const int post = receive(range_, from_extra, core_.extra);
      lane_.push_back(wait(post));
      add(range_, core_.group, {from_extra}, {core_.rank}, false);
    } else {
      add(all_.whole_ ? range_ : round(0).give, core_.group, {}, {core_.rank}, false);
    }
    if (all_.gives_rounded(0))
      lane_.push_back(reduce(range_.size(), {at(core_.rank, range_)}, {at(core_.rank, range_)},
                             Epilogue::kRound));
    arrived();
    return core_.extra >= 0 || core_.group.size() == 1;
  }

  void halve(bool summed) {
    give(0);
    for (int level = 0; level < rounds(); ++level) {
      Round& r = round(level);
      const bool last = level + 1 == rounds();
      take(level + 1);
      if (r.near) await_partner(r, level);
      wait_for(r.receive);
      const std::vector<int> mine = summed ? std::vector<int>{core_.rank} : core_.group;
      add(r.keep, mine, {r.near ? at(r.rank, r.keep) : scratch(r)},
          last ? core_.group : std::vector<int>{core_.rank}, last);
      summed = true;
      arrived();
      if (!last) give(level + 1);
      wait_for(r.send);
    }
  }

  void take_back(int level) {
    if (level < 0) return;
    Round& r = round(level);
    if (!r.near && !r.give.empty()) r.receive = receive(r.give, at(core_.rank, r.give), r.rank);
  }
  void give_back(int level) {
    if (level < 0) return;
    Round& r = round(level);
    if (!r.near && !r.keep.empty()) r.send = send(r.keep, r.rank);
  }
  void double_back() {
    std::vector<int> others = core_.group;
    std::erase(others, core_.rank);
    take_back(rounds() - 1);
    give_back(rounds() - 1);
    for (int level = rounds() - 1, gone = rounds(); level >= 0; --level, ++gone) {
      Round& r = round(level);
      take_back(level - 1);
      if (r.near) {
        await_partner(r, gone);
        copy(r.give, r.rank, core_.group);
      }
      const bool received = r.receive >= 0;
      wait_for(r.receive);
      give_back(level - 1);
      if (received) copy(r.give, core_.rank, others);
      arrived();
      wait_for(r.send);
    }
  }
  void copy(Range range, int from, const std::vector<int>& to) {
    if (range.empty() || to.empty()) return;
    lane_.push_back(
        reduce(range.size(), {at(from, range)}, everywhere(to, request_.space, range.begin)));
  }

  // Rounds the last sum if this round gives it away rounded.
  void round_for(int level) {
    if (all_.gives_rounded(level)) lane_.back().epilogue = Epilogue::kRound;
  }
  void exchange() {
    for (int level = 0; level < rounds(); ++level) {
      Round& r = round(level);
      const bool last = level + 1 == rounds();
      std::vector<int> to = last ? core_.group : std::vector<int>{core_.rank};
      take(level + 1);
      if (!r.near) {
        give(level);
        wait_for(r.receive);
        wait_for(r.send);  // before it is overwritten
        add(range_, {core_.rank}, {scratch(r)}, to, last);
        round_for(level + 1);
      } else if (index_ < r.partner) {
        await_partner(r, level);
        const auto& group = all_.cores_[std::size_t(r.partner)].group;
        if (last) to.insert(to.end(), group.begin(), group.end());
        if (!last) to.push_back(r.rank);
        add(range_, {core_.rank, r.rank}, {}, to, last);
        round_for(level + 1);
      } else {
        await_partner(r, level + 1);
      }
      arrived();
    }
  }

  const Doubling& all_;
  const Request& request_;
  int index_;
  const Core& core_;
  Range range_;
  const Place& place_;
  Lane& lane_;
  bool arrives_;
  std::vector<Round> rounds_;
};

void Doubling::walk(Lane& lane, int party, Range range, const Place& place) const {
  const int index = core_of_[std::size_t(party)];
  const Core& core = cores_[std::size_t(index)];
  const Party& me = parties_[std::size_t(party)];
  if (core.rank == me.rank) return Walk(*this, index, range, place, lane)();
  if (core.passenger == me.rank) {
    if (place.walks == 0) lane.push_back(arrive());
    return;
  }
  const auto& space = request_.space;
  const Operand mine{me.rank, space, range.begin};
  if (me.group.size() > 1)
    lane.push_back(reduce(range.size(), everywhere(me.group, space, range.begin), {mine}));
  const std::optional<DType> wire = wire_of_sums(request_);
  lane.push_back(post_send(range.size(), mine, core.rank, wire));
  lane.push_back(wait(int(lane.size()) - 1));
  lane.push_back(post_receive(range.size(), mine, core.rank, wire));
  lane.push_back(wait(int(lane.size()) - 1));
  std::vector<int> others = me.group;
  std::erase(others, me.rank);
  if (!others.empty())
    lane.push_back(reduce(range.size(), {mine}, everywhere(others, space, range.begin)));
}

void Doubling::end(Lane& lane, int party, Range /*last*/, const Place& place) const {
  const int index = core_of_[std::size_t(party)];
  const Core& core = cores_[std::size_t(index)];
  const int me = rank(party);
  if (core.passenger == me)
    lane.push_back(await({core.rank}, place.walks * arrivals(), place.lane));
  if (whole_ || core.rank != me) return;
  // Each partner must have taken what it got on the way back.
  for (int level = levels_ - 1; level >= 0; --level) {
    const int partner = index ^ (1 << level);
    const int gone = 2 * levels_ - level;
    if (together(index, partner))
      lane.push_back(await({cores_[std::size_t(partner)].rank},
                           (place.walks - 1) * arrivals() + 1 + gone, place.lane));
  }
}

}  // namespace lockstep::collectives
