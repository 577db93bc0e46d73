// SPDX-License-Identifier: MIT
// For the simulator: what runs on one host at one time, and how fast, since it shares the host.
// Each rank runs at most one piece of work. A piece has a time that it would take alone, and takes
// in that time a share of each resource: processors, the memory's bus, of devices their memories
// and links. While the shares of a resource add up to more than the whole, all that use it are
// slowed down by that factor; a piece runs as its slowest resource lets it. Not thread-safe.
//
// Cost of `start` and `finish`: the pieces that run, times the resources each uses.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/topology/link_costs.h"

namespace lockstep::collectives {

// What pieces of work on a host share.
enum class HostPart : std::uint8_t {
  kProcessors,
  kMemory,        // that all processors share
  kDeviceMemory,  // of one device
  kPort,          // of one device, to those without a direct link to it
  kLink,          // between two devices, in one direction
};

class HostLoad {
 public:
  // `ranks` of this host, the processors they have together, and the bytes that all of them touch.
  // `costs` outlives this.
  HostLoad(const HostCosts& costs, int ranks, int cores, double working_set);

  // Work of the rank with this number on the host, from `now` on. `reads`, `writes`: numbers on the
  // host of the ranks whose memory is read and written, `bytes` each.
  void start_reduce(double now, int rank, double bytes, double blocks,
                    const std::vector<int>& reads, const std::vector<int>& writes);
  void start_processing(double now, int rank, double seconds);
  // When the next piece ends if nothing else begins before; infinity: nothing runs.
  double next() const { return next_; }
  // Ends it, and tells whose it was.
  int finish();
  double memory_bytes() const { return memory_bytes_; }  // read and written until now
  // Of what was started until now, were each piece alone: the resource that it needs longest, for
  // how long; and the work of the rank with most.
  HostPart busiest() const { return part_of(most_needed()); }
  double busiest_seconds() const { return needed_[most_needed()]; }
  double most_work() const;

 private:
  struct Demand {
    int resource = 0;
    double share = 0;  // of the whole resource, while it runs unhindered
  };
  struct Piece {
    bool runs = false;
    double left = 0;  // seconds alone
    double speed = 1;
    double work = 0;  // seconds of all its pieces, alone
    std::vector<Demand> demands = {};
  };
  std::size_t most_needed() const;
  HostPart part_of(std::size_t resource) const;
  bool devices() const { return costs_.link != LinkClass::kMemory; }
  int others(int rank, const std::vector<int>& reads, const std::vector<int>& writes) const;
  void add_way(Piece& piece, int from, int to, double bytes);
  void add(Piece& piece, int resource, double seconds);
  void begin(double now, int rank, double seconds);
  void need(const Piece& piece);
  void advance(double now);
  void share();

  const HostCosts& costs_;
  int ranks_;
  MemoryPass pass_;
  double now_ = 0;
  double next_ = std::numeric_limits<double>::infinity();
  int next_rank_ = -1;
  std::vector<Piece> pieces_;     // by rank
  std::vector<double> capacity_;  // of each resource
  std::vector<double> load_;      // scratch
  std::vector<double> link_;      // bytes/s of the direct link [from][to]; 0: none
  std::vector<double> needed_;    // s, of each resource
  double memory_bytes_ = 0;
};

}  // namespace lockstep::collectives
