// SPDX-License-Identifier: MIT
// Load of one host in the simulator: which pieces of work run at a time, and how fast, since they
// share the host. Each rank runs at most one piece. A piece has a time that it would take alone. In
// that time it takes a share of each resource: processors and memory bus, or the memories and links
// of devices. If the shares of a resource add up to more than the whole, all its users slow down by
// that factor. A piece runs as fast as its slowest resource allows. Not thread-safe.
//
// `start` and `finish` cost time in proportion to the running pieces and to the resources of each.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "collectives/plan/plan.h"
#include "collectives/topology/link_costs.h"

namespace lockstep::collectives {

// Names the resources that pieces of work on a host share.
enum class HostPart : std::uint8_t {
  kProcessors,
  kMemory,        // memory that all processors share
  kDeviceMemory,  // memory of one device
  kPort,          // to devices without a direct link
  kLink,          // direct link between devices, in one direction
};

class HostLoad {
 public:
  // Models a host of `ranks` ranks that share `cores` processors and touch `working_set` bytes in
  // all. `costs` must outlive the object.
  HostLoad(const HostCosts& costs, int ranks, int cores, double working_set);

  // Starts a reduction of a rank at `now`. Ranks are numbered on the host. `reads` and `writes`:
  // the ranks whose memory is read and written, `bytes` each.
  void start_reduce(double now, int rank, double bytes, double blocks,
                    const std::vector<int>& reads, const std::vector<int>& writes);
  void start_processing(double now, int rank, double seconds);
  // Returns when the next piece ends if no other starts before; infinity if none runs.
  double next() const { return next_; }
  // Ends this piece and returns its rank.
  int finish();
  double memory_bytes() const { return memory_bytes_; }  // read and written so far
  // Returns the resource that the pieces started so far need longest, if each ran alone.
  // `busiest_seconds` is that time, and `most_work` the time of the rank with the most work.
  HostPart busiest() const { return part_of(most_needed()); }
  double busiest_seconds() const { return needed_[most_needed()]; }
  double most_work() const;

 private:
  struct Demand {
    int resource = 0;
    double share = 0;  // fraction of the resource at full speed
  };
  struct Piece {
    bool runs = false;
    double left = 0;  // remaining seconds alone
    double speed = 1;
    double work = 0;  // seconds of all its pieces alone
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
  std::vector<Piece> pieces_;     // indexed by rank
  std::vector<double> capacity_;  // per resource
  std::vector<double> load_;      // scratch
  std::vector<double> link_;      // bytes/s of the direct link [from][to]; 0: none
  std::vector<double> needed_;    // s per resource
  double memory_bytes_ = 0;
};

}  // namespace lockstep::collectives
