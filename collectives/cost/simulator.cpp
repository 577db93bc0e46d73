// SPDX-License-Identifier: MIT
#include "collectives/cost/simulator.h"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <compare>
#include <deque>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

enum class EventKind : std::uint8_t {
  kResume,   // a lane continues; `index`: the lane
  kHost,     // a piece of work ends; `index`: the host
  kReceive,  // a wanted message begins to arrive; `index`: message
};

// Events at one time happen in the order of their creation. `version`: of the host's load (kHost).
struct Event {
  double at = 0;
  std::uint64_t order = 0;
  EventKind kind = EventKind::kResume;
  int index = 0;
  std::uint32_t version = 0;
  bool operator<(const Event& other) const {  // the queue's top is its largest
    return std::pair(at, order) > std::pair(other.at, other.order);
  }
};

// Measures a chain of dependent signals and messages: their number, and their time without bytes.
struct Rounds {
  double seconds = 0;
  int count = 0;
  Rounds and_one(double takes) const { return {seconds + takes, count + 1}; }
  auto operator<=>(const Rounds&) const = default;
};

// Records an arrival: its time, and the rounds before it.
struct Mark {
  double at = 0;
  Rounds rounds = {};
};

// Represents a message of a lane between hosts: the k-th send matches the k-th receive.
struct SimulatedMessage {
  int from = -1, to = -1;  // ranks
  double bytes = 0;
  double converted = 0;                     // bytes that converting touches at each end
  bool begun = false, left = false;         // sending has begun; has ended
  bool wanted = false, taken = false;       // receive is posted; receiver's work is done
  double first = 0, last = 0, arrived = 0;  // first byte received; last byte sent, received
  double sent = kNever, received = kNever;  // when the posts complete
  int sender = -1, receiver = -1;           // lanes that wait for that
  Rounds rounds = {};
  int lane = 0, send_step = 0, receive_step = 0;  // for `record`
};

struct OpenPost {
  int step = 0, message = 0;
  bool send = false;
};

struct LaneState {
  int rank = 0, lane = 0;
  std::size_t step = 0;
  double at = 0;  // ahead of the clock by small steps' costs
  Rounds rounds = {};
  std::vector<Mark> marks = {};                      // its arrivals
  std::vector<std::pair<int, int>> awaited_by = {};  // phase, lane
  std::vector<OpenPost> posts = {};                  // not awaited yet
};

// Holds what a rank's thread does: a reduction of a lane, or the processing of a message.
struct RankState {
  int host = 0, place = 0;  // number on that host
  bool busy = false;
  int lane = -1, message = -1;  // in progress; `sends`: the message's direction
  bool sends = false;
  double began = 0;
  std::deque<std::pair<int, bool>> messages = {};  // pending; true: to send
  std::uint32_t ready = 0;                         // lanes whose reduction could run, as bits
};

struct HostState {
  HostLoad load;
  std::uint32_t version = 0;
  // Times at which the links have sent, and received, all pending messages; initially long ago.
  double out_free = -kNever, in_free = -kNever;
  double sent = 0;  // bytes
  double core = 0;  // bytes/s that one rank reads and writes
};

class SimulationRun {
 public:
  SimulationRun(const Plan& plan, const Topology& topology, const SimulationOptions& options)
      : plan_(plan),
        wire_(topology.wire),
        options_(options),
        width_(double(size_of(plan.dtype))),
        ahead_(topology.wire.burst / topology.wire.bandwidth) {
    place_ranks(topology);
    for (const auto& lanes : plan.lanes) most_lanes_ = std::max(most_lanes_, int(lanes.size()));
    lanes_.resize(std::size_t(plan.ranks() * most_lanes_));
    for (int rank = 0; rank < plan.ranks(); ++rank)
      for (int lane = 0; lane < most_lanes_; ++lane)
        state(rank, lane).rank = rank, state(rank, lane).lane = lane;
  }

  Simulation run() {
    for (int lane = 0; lane < int(lanes_.size()); ++lane) push(0, EventKind::kResume, lane);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      if (event.kind == EventKind::kResume) advance(event.index);
      if (event.kind == EventKind::kReceive) begin_receive(event.index);
      if (event.kind == EventKind::kHost) piece_ended(event.index, event.version);
    }
    return result();
  }

 private:
  void place_ranks(const Topology& topology) {
    engine::require(plan_.host == topology.host_of_rank(),
                    "{}: a plan of {} ranks is to be priced on a topology with other ranks or "
                    "hosts ({} ranks)",
                    plan_.name, plan_.ranks(), topology.ranks.size());
    std::vector<int> ranks(topology.hosts.size());
    ranks_.resize(plan_.host.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].host = plan_.host[rank];
      ranks_[rank].place = ranks[std::size_t(plan_.host[rank])]++;
    }
    const double bytes =
        options_.bytes > 0 ? options_.bytes : double(plan_.subject.size()) * width_;
    hosts_.reserve(topology.hosts.size());
    for (std::size_t host = 0; host < topology.hosts.size(); ++host)
      hosts_.push_back({HostLoad(topology.hosts[host].costs, ranks[host],
                                 topology.cores_of_host(int(host)), bytes * ranks[host])});
    for (std::size_t host = 0; host < topology.hosts.size(); ++host)
      hosts_[host].core = topology.hosts[host].costs.pass(bytes * ranks[host]).core;
    for (const auto& host : topology.hosts) costs_.push_back(&host.costs);
  }

  LaneState& state(int rank, int lane) { return lanes_[std::size_t(rank * most_lanes_ + lane)]; }
  RankState& rank_state(int rank) { return ranks_[std::size_t(rank)]; }
  HostState& host_of(int rank) { return hosts_[std::size_t(rank_state(rank).host)]; }
  const HostCosts& costs_of(int rank) { return *costs_[std::size_t(rank_state(rank).host)]; }
  const Lane& steps(const LaneState& lane) const {
    static const Lane none;
    const auto& lanes = plan_.lanes[std::size_t(lane.rank)];
    return std::size_t(lane.lane) < lanes.size() ? lanes[std::size_t(lane.lane)] : none;
  }
  void push(double at, EventKind kind, int index, std::uint32_t version = 0) {
    events_.push({at, order_++, kind, index, version});
  }
  void record(int rank, int lane, int step, Action action, double begin, double end) {
    if (options_.record) activities_.push_back({rank, lane, step, action, begin, end});
  }

  // Runs a lane until it has to wait.
  void advance(int index) {
    LaneState& lane = lanes_[std::size_t(index)];
    const Lane& steps = this->steps(lane);
    const double step_cost = costs_of(lane.rank).step;
    while (lane.step < steps.size()) {
      const Step& step = steps[lane.step];
      switch (step.action) {
        case Action::kReduce:
          rank_state(lane.rank).ready |= 1u << lane.lane;
          return work(lane.rank);
        case Action::kArrive:
          lane.at += step_cost;
          arrive(lane);
          break;
        case Action::kAwait:
          if (!await(lane, index, step)) return;
          break;
        case Action::kPostSend:
        case Action::kPostReceive:
          lane.at += step_cost;
          post(lane, step);
          break;
        case Action::kWait:
          if (!wait(lane, index, step)) return;
          break;
        case Action::kVendor:
          engine::fail(engine::Code::kInvalid, "what a vendor's library costs is not known");
      }
      ++lane.step;
    }
  }

  void arrive(LaneState& lane) {
    lane.marks.push_back({lane.at, lane.rounds});
    const int phase = int(lane.marks.size());
    std::erase_if(lane.awaited_by, [&](const auto& waiter) {
      if (waiter.first > phase) return false;
      push(std::max(now_, lane.at), EventKind::kResume, waiter.second);
      return true;
    });
  }

  // Returns whether all have arrived and the clock is at that time.
  bool await(LaneState& lane, int index, const Step& step) {
    Mark last{lane.at, lane.rounds};
    for (const int rank : step.ranks) {
      LaneState& other = state(rank, step.lane);
      if (int(other.marks.size()) < step.phase) {
        other.awaited_by.push_back({step.phase, index});
        return false;
      }
      if (step.phase == 0) continue;
      const Mark& mark = other.marks[std::size_t(step.phase - 1)];
      const bool own = rank == lane.rank;
      const double signal = costs_of(lane.rank).signal;
      const double at = mark.at + (own ? 0 : signal);
      last.at = std::max(last.at, at);
      last.rounds = std::max(last.rounds, own ? mark.rounds : mark.rounds.and_one(signal));
    }
    return reach(lane, index, last);
  }

  bool wait(LaneState& lane, int index, const Step& step) {
    const auto post = std::find_if(lane.posts.begin(), lane.posts.end(),
                                   [&](const OpenPost& p) { return p.step == step.post; });
    engine::require(post != lane.posts.end(), "{}: rank {} lane {} waits for step {}, no post",
                    plan_.name, lane.rank, lane.lane, step.post);
    SimulatedMessage& message = messages_[std::size_t(post->message)];
    const double through = post->send ? message.sent : message.received;
    if (through == kNever) {
      (post->send ? message.sender : message.receiver) = index;
      return false;
    }
    const Mark last{std::max(lane.at, through),
                    post->send ? lane.rounds : std::max(lane.rounds, message.rounds)};
    const bool reached = reach(lane, index, last);
    if (reached) lane.posts.erase(post);
    return reached;
  }

  // Continues the lane at `mark`. Returns whether the clock is there already.
  bool reach(LaneState& lane, int index, const Mark& mark) {
    lane.rounds = mark.rounds;
    lane.at = mark.at;
    if (mark.at <= now_) return true;
    push(mark.at, EventKind::kResume, index);
    return false;
  }

  // Returns the message of this rank's next send (or receive) in a lane.
  int message(int from, int to, int lane, bool send) {
    const auto ranks = std::uint64_t(plan_.ranks());
    Channel& channel = channels_[(std::uint64_t(from) * ranks + std::uint64_t(to)) * kMaxLanes +
                                 std::uint64_t(lane)];
    const std::size_t number = send ? channel.sent++ : channel.received++;
    if (number == channel.messages.size()) {
      channel.messages.push_back(int(messages_.size()));
      messages_.emplace_back();
    }
    return channel.messages[number];
  }

  void post(LaneState& lane, const Step& step) {
    const bool send = step.action == Action::kPostSend;
    const int index =
        message(send ? lane.rank : step.peer, send ? step.peer : lane.rank, lane.lane, send);
    SimulatedMessage& m = messages_[std::size_t(index)];
    lane.posts.push_back({int(lane.step), index, send});
    if (!send) {
      m.to = lane.rank, m.wanted = true;
      m.receive_step = int(lane.step);
      if (m.begun) push(std::max(now_, m.first), EventKind::kReceive, index);
      return;
    }
    m.from = lane.rank, m.to = step.peer, m.lane = lane.lane;
    const double wire = step.wire ? double(size_of(*step.wire)) : width_;
    m.bytes = double(step.count) * wire;
    if (step.wire) m.converted = double(step.count) * (width_ + wire);
    m.rounds = lane.rounds.and_one(wire_.latency + 2 * wire_.message);
    m.send_step = int(lane.step);
    work_on(lane.rank, index, true);
  }

  double processing(const SimulatedMessage& m, int rank) {
    const HostState& host = host_of(rank);
    return wire_.message + m.bytes * wire_.processor + m.converted / host.core;
  }

  // Queues a message for its rank's thread, or handles it at once if it costs no time.
  void work_on(int rank, int message, bool sends) {
    if (processing(messages_[std::size_t(message)], rank) > 0) {
      rank_state(rank).messages.push_back({message, sends});
      return work(rank);
    }
    if (sends) begin_send(message), end_send(message);
    if (!sends) end_receive(message);
  }

  // Gives the thread of a rank something to do, if it has nothing.
  void work(int rank) {
    RankState& r = rank_state(rank);
    HostState& host = host_of(rank);
    if (r.busy) return;
    if (!r.messages.empty()) {
      std::tie(r.message, r.sends) = r.messages.front();
      r.messages.pop_front();
      if (r.sends) begin_send(r.message);
      host.load.start_processing(now_, r.place,
                                 processing(messages_[std::size_t(r.message)], rank));
    } else if (r.ready != 0) {
      r.lane = std::countr_zero(r.ready);
      r.ready &= r.ready - 1;
      start_reduce(state(rank, r.lane), r, host.load);
    } else {
      return;
    }
    r.busy = true;
    r.began = now_;
    expect(r.host);
  }

  void start_reduce(const LaneState& lane, const RankState& r, HostLoad& load) {
    const Step& step = steps(lane)[lane.step];
    const double width = step.from[0].space == Space::kNorms ? sizeof(double) : width_;
    reads_.clear(), writes_.clear();
    for (const Operand& operand : step.from) reads_.push_back(rank_state(operand.rank).place);
    for (const Operand& operand : step.to) writes_.push_back(rank_state(operand.rank).place);
    if (step.epilogue == Epilogue::kUpdate) {  // weights, and slots, which are written too
      reads_.insert(reads_.end(), 1 + options_.slots, r.place);
      writes_.insert(writes_.end(), options_.slots, r.place);
    }
    const double blocks = double((step.count + engine::kBlock - 1) / engine::kBlock);
    load.start_reduce(now_, r.place, double(step.count) * width, blocks, reads_, writes_);
  }

  // Schedules the next end of a piece, since the load of a host has changed.
  void expect(int host) {
    HostState& h = hosts_[std::size_t(host)];
    if (h.load.next() < kNever) push(h.load.next(), EventKind::kHost, host, ++h.version);
  }

  void piece_ended(int host, std::uint32_t version) {
    HostState& h = hosts_[std::size_t(host)];
    if (version != h.version) return;
    ++h.version;
    const int rank = rank_at(host, h.load.finish());
    RankState& r = rank_state(rank);
    r.busy = false;
    if (r.message >= 0) {
      const int message = std::exchange(r.message, -1);
      if (r.sends) end_send(message);
      if (!r.sends) end_receive(message);
    } else {
      LaneState& lane = state(rank, r.lane);
      record(rank, r.lane, int(lane.step), Action::kReduce, r.began, now_);
      ++lane.step;
      lane.at = std::max(lane.at, now_);
      advance(rank * most_lanes_ + r.lane);
    }
    work(rank);
    expect(host);
  }

  // Begins a send. The first byte leaves after those of earlier messages and arrives before the
  // last has left, so both ranks work at the same time. An idle link is ahead by as much as its
  // burst allows, so `out_free` may lie before now.
  void begin_send(int index) {
    SimulatedMessage& m = messages_[std::size_t(index)];
    HostState& host = host_of(m.from);
    const double begin = std::max(now_, host.out_free);
    m.first = std::max(begin, now_ + wire_.message) + wire_.latency;
    host.out_free = std::max(now_ - ahead_, host.out_free) + m.bytes / wire_.bandwidth;
    m.last = std::max(begin, host.out_free);
    host.sent += m.bytes;
    m.begun = true;
    record(m.from, m.lane, m.send_step, Action::kPostSend, begin, m.last);
    if (m.wanted) push(m.first, EventKind::kReceive, index);
  }

  // Ends a send. The system has all bytes now, so the wire has them no earlier.
  void end_send(int index) {
    SimulatedMessage& m = messages_[std::size_t(index)];
    HostState& to = host_of(m.to);
    m.last = std::max(m.last, now_);
    const double seconds = m.bytes / wire_.bandwidth;
    to.in_free = std::max(m.last - seconds - ahead_, to.in_free) + seconds;
    m.arrived = std::max(m.last, to.in_free) + wire_.latency;
    m.left = true;
    m.sent = m.last;
    if (m.sender >= 0) push(m.sent, EventKind::kResume, m.sender);
    if (m.taken) end_receive(index);
  }

  void begin_receive(int index) { work_on(messages_[std::size_t(index)].to, index, false); }

  // Ends the receiver's work. The message may still be on its way.
  void end_receive(int index) {
    SimulatedMessage& m = messages_[std::size_t(index)];
    m.taken = true;
    if (!m.left) return;
    m.received = std::max(now_, m.arrived);
    record(m.to, m.lane, m.receive_step, Action::kPostReceive, m.first, m.received);
    if (m.receiver >= 0) push(m.received, EventKind::kResume, m.receiver);
  }

  int rank_at(int host, int place) {
    if (ranks_of_.empty()) {
      ranks_of_.resize(hosts_.size());
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        ranks_of_[std::size_t(ranks_[rank].host)].push_back(int(rank));
    }
    return ranks_of_[std::size_t(host)][std::size_t(place)];
  }

  Simulation result() {
    Simulation result;
    result.ended.assign(ranks_.size(), 0.0);
    Rounds most;
    for (const LaneState& lane : lanes_) {
      const Lane& steps = this->steps(lane);
      if (lane.step < steps.size()) fail_stuck(lane, steps[lane.step]);
      double& ended = result.ended[std::size_t(lane.rank)];
      ended = std::max(ended, lane.at);
      result.seconds = std::max(result.seconds, lane.at);
      most = std::max(most, lane.rounds);
    }
    result.rounds = most.count;
    result.round_seconds = most.seconds;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      result.ended[rank] += costs_of(int(rank)).call + (messages_.empty() ? 0 : wire_.call);
      result.seconds = std::max(result.seconds, result.ended[rank]);
    }
    for (const HostState& host : hosts_) {
      result.wire_bytes = std::max(result.wire_bytes, host.sent);
      result.memory_bytes = std::max(result.memory_bytes, host.load.memory_bytes());
      result.work_seconds = std::max(result.work_seconds, host.load.most_work());
      if (host.load.busiest_seconds() <= result.part_seconds) continue;
      result.part_seconds = host.load.busiest_seconds();
      result.part = host.load.busiest();
    }
    result.activities = std::move(activities_);
    return result;
  }

  [[noreturn]] void fail_stuck(const LaneState& lane, const Step& step) const {
    std::string what(name(step.action));
    if (step.action == Action::kWait) what += fmt::format(" for step {}", step.post);
    if (step.action == Action::kAwait)
      what +=
          fmt::format(" {} of lane {} of r{}", step.phase, step.lane, fmt::join(step.ranks, " r"));
    engine::fail(engine::Code::kInvalid, "{}: rank {} lane {} waits for ever at step {}: {}",
                 plan_.name, lane.rank, lane.lane, lane.step, what);
  }

  struct Channel {
    std::vector<int> messages = {};
    std::size_t sent = 0, received = 0;
  };

  const Plan& plan_;
  const WireCosts& wire_;
  const SimulationOptions& options_;
  const double width_;
  const double ahead_;  // s, of an idle link
  int most_lanes_ = 0;
  double now_ = 0;
  std::uint64_t order_ = 0;
  std::vector<LaneState> lanes_;  // indexed by rank, then lane
  std::vector<RankState> ranks_;
  std::vector<HostState> hosts_;
  std::vector<const HostCosts*> costs_;     // one entry per host
  std::vector<std::vector<int>> ranks_of_;  // one list per host
  std::vector<SimulatedMessage> messages_;
  std::unordered_map<std::uint64_t, Channel> channels_;
  std::priority_queue<Event> events_;
  std::vector<Activity> activities_;
  std::vector<int> reads_, writes_;  // scratch
};

}  // namespace

Simulation simulate(const Plan& plan, const Topology& topology, const SimulationOptions& options) {
  return SimulationRun(plan, topology, options).run();
}

}  // namespace lockstep::collectives
