// SPDX-License-Identifier: MIT
// Resource numbers. A host with one memory has 0 (processors) and 1 (memory bus). A host of n
// devices has r (memory of rank r), n + r (its outgoing port), 2 n + r (its incoming port), and
// 3 n + from * n + to (direct link in one direction).
#include "collectives/cost/host_load.h"

#include <algorithm>

namespace lockstep::collectives {
namespace {

constexpr int kProcessors = 0, kBus = 1;

}  // namespace

HostLoad::HostLoad(const HostCosts& costs, int ranks, int cores, double working_set)
    : costs_(costs), ranks_(ranks), pass_(costs.pass(working_set)), pieces_(std::size_t(ranks)) {
  const auto n = std::size_t(ranks);
  if (!devices()) {
    capacity_ = {double(cores), 1.0};
  } else {
    capacity_.assign(3 * n + n * n, 1.0);
    link_ = costs.direct(ranks);
  }
  load_.resize(capacity_.size());
  needed_.resize(capacity_.size());
}

// Adds a demand. `seconds`: how long the piece would keep the resource busy if it had it alone.
void HostLoad::add(Piece& piece, int resource, double seconds) {
  for (Demand& demand : piece.demands) {
    if (demand.resource != resource) continue;
    demand.share += seconds;
    return;
  }
  piece.demands.push_back({resource, seconds});
}

// Adds the path between the memories of two devices; there is none within one.
void HostLoad::add_way(Piece& piece, int from, int to, double bytes) {
  if (from == to) return;
  const int n = ranks_;
  const double link = link_[std::size_t(from * n + to)];
  if (link > 0) return add(piece, 3 * n + from * n + to, bytes / link);
  add(piece, n + from, bytes / costs_.port);
  add(piece, 2 * n + to, bytes / costs_.port);
}

// Returns how many of `reads` are fetched: those from other ranks, if nothing is stored into
// others.
int HostLoad::others(int rank, const std::vector<int>& reads,
                     const std::vector<int>& writes) const {
  const auto other = [rank](int r) { return r != rank; };
  if (pass_.fetch <= 0 || std::any_of(writes.begin(), writes.end(), other)) return 0;
  return int(std::count_if(reads.begin(), reads.end(), other));
}

void HostLoad::start_reduce(double now, int rank, double bytes, double blocks,
                            const std::vector<int>& reads, const std::vector<int>& writes) {
  Piece& piece = pieces_[std::size_t(rank)];
  piece.demands.clear();
  const double all = bytes * double(reads.size() + writes.size());
  memory_bytes_ += all;
  double seconds = costs_.step + costs_.reduction + blocks * costs_.block;
  if (!devices()) {
    const double fetched = bytes * double(others(rank, reads, writes));
    seconds += (all - fetched) / pass_.core;
    if (fetched > 0) seconds += fetched / pass_.fetch;
    piece.demands = {{kProcessors, seconds}, {kBus, all / pass_.host}};
  } else {
    for (const int other : reads) {
      add(piece, other, bytes / pass_.core);
      add_way(piece, other, rank, bytes);
    }
    for (const int other : writes) {
      add(piece, other, bytes / pass_.core);
      add_way(piece, rank, other, bytes);
    }
    double longest = 0;
    for (const Demand& demand : piece.demands) longest = std::max(longest, demand.share);
    seconds += longest;
  }
  need(piece);
  if (seconds <= 0) piece.demands.clear();  // on a machine without costs
  for (Demand& demand : piece.demands) demand.share /= seconds;
  begin(now, rank, seconds);
}

void HostLoad::start_processing(double now, int rank, double seconds) {
  Piece& piece = pieces_[std::size_t(rank)];
  piece.demands.clear();
  if (!devices()) {
    piece.demands = {{kProcessors, seconds}};
    need(piece);
    piece.demands[0].share = 1;
  }
  begin(now, rank, seconds);
}

// Adds up the demands of a piece, whose shares are seconds here.
void HostLoad::need(const Piece& piece) {
  for (const Demand& demand : piece.demands) {
    const auto resource = std::size_t(demand.resource);
    needed_[resource] += demand.share / capacity_[resource];
  }
}

std::size_t HostLoad::most_needed() const {
  return std::size_t(std::max_element(needed_.begin(), needed_.end()) - needed_.begin());
}

HostPart HostLoad::part_of(std::size_t resource) const {
  if (!devices()) return resource == kProcessors ? HostPart::kProcessors : HostPart::kMemory;
  const auto n = std::size_t(ranks_);
  return resource < n       ? HostPart::kDeviceMemory
         : resource < 3 * n ? HostPart::kPort
                            : HostPart::kLink;
}

double HostLoad::most_work() const {
  double most = 0;
  for (const Piece& piece : pieces_) most = std::max(most, piece.work);
  return most;
}

void HostLoad::begin(double now, int rank, double seconds) {
  advance(now);
  Piece& piece = pieces_[std::size_t(rank)];
  piece.runs = true;
  piece.left = seconds;
  piece.work += seconds;
  share();
}

int HostLoad::finish() {
  const int rank = next_rank_;
  advance(next_);
  pieces_[std::size_t(rank)].runs = false;
  share();
  return rank;
}

void HostLoad::advance(double now) {
  for (Piece& piece : pieces_)
    if (piece.runs) piece.left = std::max(0.0, piece.left - (now - now_) * piece.speed);
  now_ = now;
}

void HostLoad::share() {
  std::fill(load_.begin(), load_.end(), 0.0);
  for (const Piece& piece : pieces_) {
    if (!piece.runs) continue;
    for (const Demand& demand : piece.demands) load_[std::size_t(demand.resource)] += demand.share;
  }
  next_ = std::numeric_limits<double>::infinity();
  next_rank_ = -1;
  for (std::size_t rank = 0; rank < pieces_.size(); ++rank) {
    Piece& piece = pieces_[rank];
    if (!piece.runs) continue;
    piece.speed = 1;
    for (const Demand& demand : piece.demands) {
      const auto r = std::size_t(demand.resource);
      if (load_[r] > capacity_[r]) piece.speed = std::min(piece.speed, capacity_[r] / load_[r]);
    }
    const double end = now_ + piece.left / piece.speed;
    if (end < next_) next_ = end, next_rank_ = int(rank);
  }
}

}  // namespace lockstep::collectives
