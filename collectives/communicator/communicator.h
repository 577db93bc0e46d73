// SPDX-License-Identifier: MIT
// EXPERIMENTAL: names and options may change until the collectives are complete.
//
// Collectives on plain memory, without a graph, for programs with their own training loop. Each
// rank is one process of the job or one thread (`run_ranks`). All ranks make the same calls in the
// same order. A call that differs (count, type, operation, root, or another call) throws
// Error(kInvalid) on all ranks, at that call, and the communicator stays usable.
//
//   lockstep::Session session(argc, argv);
//   auto communicator = lockstep::communicator(session);
//   communicator.all_reduce(std::span(gradient), lockstep::Reduce::kMean);
//
// Elements are float, double, std::int32_t, std::int64_t, Half (IEEE's 16 bits) or BFloat16.
#pragma once
#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/algorithms/registry.h"
#include "collectives/algorithms/request.h"
#include "collectives/bootstrap/bootstrap.h"
#include "collectives/cost/planner.h"
#include "collectives/cost/size_rules.h"
#include "collectives/job/job.h"
#include "collectives/job/rank_link.h"

namespace lockstep::collectives {

struct RankCall;

// Integers have no mean, and they wrap around. In minima and maxima a NaN wins over all numbers.
enum class Reduce { kSum, kMean, kMin, kMax, kProduct };

template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> ||
    std::same_as<T, engine::Half> || std::same_as<T, engine::BFloat16>;
// Accepts a writable std::span, std::vector or array of such elements.
template <class Values>
concept Elements = std::ranges::contiguous_range<Values> &&
    Element<std::remove_reference_t<std::ranges::range_reference_t<Values>>>;

template <class Values>
auto span_of(Values& values) {
  return std::span<std::ranges::range_value_t<Values>>(values);
}

struct CommunicatorOptions {
  std::chrono::milliseconds deadline{60000};  // limit of each wait for another rank
  // Folder of the first process with measured costs, as `lockstep plan` and strategies store them.
  // If it has none for these ranks, costs are assumed; nothing is measured.
  std::filesystem::path cost_cache = {};
  // Algorithm instead of the planner's choice (collectives/cost/planner.h): one name, or names by
  // message size (collectives/cost/size_rules.h). The planner chooses direct or one shot on one
  // host, since only these add in rank order and round once. Between hosts it chooses any.
  std::string algorithm = "auto";
  // If true, sums and means of floating point have the same bits for every algorithm, layout and
  // order of the same number of ranks. All ranks must agree, else no communicator is made.
  //
  // They are added exactly, in fixed point (engine/ops/fixed_point.h). Each block of 1024 elements,
  // counted from the beginning of the span, has a grid that fits its largest number over all ranks.
  // Relative to that number an element keeps at least 2^-(62 - log2 n) for n ranks (float64:
  // 2^-(125 - 2 log2 n)). The sum is rounded once, also for 16 bits.
  //
  // A NaN, or both infinities, give one fixed NaN; infinities of one sign stay. A sum of zero is
  // +0. Minima and maxima are reproducible except for the sign of zero and the bits of NaN, which
  // are made the same. Products are refused.
  //
  // Cost: one more all-reduce, of 8 bytes per block, and 8 bytes per element in the sum (float64:
  // 16). Everything is copied.
  bool reproducible = false;
};

// One thread at a time uses a communicator and its buckets. Every wait has the deadline of the
// options. An error names the call, and the ranks that arrived and that did not (kTimeout) or that
// died (kPeerLost). Every later call throws the same error at once. If an exception destroys a
// communicator, or buckets in flight, the other ranks are told.
//
// Cost: each call first compares its arguments (some microseconds on one host). Memory from
// `allocate` is reduced in place; other memory is copied in pieces through a mapped area of 2 MiB.
// Sums and means of float and double share one area. Every other type and operation has an area,
// which its first call maps.
//
// The bits of a sum are the same on all ranks, and the same again for the same ranks. Between hosts
// they also depend on the costs.
//
// Half and BFloat16 are added as float32 and rounded to nearest, ties to even: once if all ranks
// are on one host. Between hosts partial sums have the elements' type, so a sum of n ranks is
// rounded at most n - 1 times. The result is within (n - 1) u times the sum of all magnitudes; u is
// 2^-11 for Half and 2^-8 for BFloat16.
class Communicator {
 public:
  // The bootstrap must outlive the communicator, which owns `ops`. Collective.
  Communicator(Bootstrap& bootstrap, std::unique_ptr<engine::Ops> ops,
               const CommunicatorOptions& options = {}, const Network& network = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return job_.rank(); }
  int size() const { return job_.size(); }
  std::string algorithm() const { return algorithm_; }  // algorithm of long sums: "direct"
  // Returns from which size on each algorithm is used, the reasons, and the source of the costs.
  std::string explain() const;

  // Deadline of one call as a whole, shorter or longer than the options' deadline.
  using Deadline = std::optional<std::chrono::milliseconds>;

  // Reduces `values` in place over all ranks. The mean is the sum times 1 / size. `values` may be
  // empty.
  template <Elements Values>
  void all_reduce(Values&& values, Reduce operation = Reduce::kSum, Deadline deadline = {}) {
    reduce(span_of(values), operation, deadline);
  }
  // Copies the root's values to all ranks, bit for bit, except that signaling NaNs become quiet.
  template <Elements Values>
  void broadcast(Values&& values, int root = 0, Deadline deadline = {}) {
    spread(span_of(values), root, deadline);
  }
  void barrier(Deadline deadline = {});

  // Returns this rank's part of zeroed memory that all ranks of a host map. A sum or mean of the
  // whole part copies nothing. Read as another type, it is like any other memory. Collective. The
  // memory lives as long as the communicator.
  template <Element T>
  std::span<T> allocate(std::size_t count);

  // Stops all ranks: their current or next call throws `why`. kPeerLost says that a rank is dead;
  // then no session waits for the others at its end.
  void abort(const engine::Error& why) noexcept;

 private:
  template <class T>
  friend class Buckets;
  struct Owned {  // memory from `allocate`
    const void* data = nullptr;
    engine::DType dtype{};  // type of its plans
    std::size_t count = 0;
    RankLink* link = nullptr;
  };
  template <class T>
  void reduce(std::span<T> values, Reduce operation, Deadline deadline);
  template <class T>
  void spread(std::span<T> values, int root, Deadline deadline);
  void agree(const RankCall& mine, Deadline deadline = {});
  // Throws an error that all ranks have found, after all of them have found it.
  [[noreturn]] void fail_together(const std::string& what);
  void run(RankLink& link, int plan, std::string_view purpose);
  // Runs `work`. An error on one link aborts all links, here and on all other ranks, since the
  // ranks may no longer agree.
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      abort(engine::as_error(error));
      throw;
    }
  }
  // Stops all ranks with "rank 2 <how>". For destructors.
  void leave(std::string_view how) noexcept;
  // Mapped memory for pieces of values, with one plan over it per length.
  struct Area {
    RankLink* link = nullptr;
    std::size_t begin = 0;  // bytes
    int plan = 0;           // of the shortest length
  };
  // Returns the area of a type and operation. The first call for both is collective.
  Area area(engine::DType dtype, Reduce operation);
  // Adds one plan, or one per length, with scratch memory behind the first `scratch` bytes.
  void add(StepPlan& plan, std::size_t& scratch, Request request) const;
  void add_pieces(StepPlan& plan, std::size_t& scratch, engine::DType dtype, Reduce operation,
                  std::size_t begin) const;
  // Runs the shortest plan of an area with room for `count` elements. The other elements become
  // zero.
  template <class T>
  void run_piece(const Area& area, std::size_t count);
  // Reduces floating-point values by any operation except products.
  template <class T>
  void reduce_reproducibly(std::span<T> values, Reduce operation);
  template <class T>
  void sum_in_fixed_point(std::span<T> values, Reduce operation);
  // Reduces `values` piece by piece through an area. A silent rank contributes nothing.
  template <class T>
  void through_area(std::span<T> values, Reduce operation, bool silent);
  Request request(std::string name, engine::DType dtype, Reduce operation) const;
  void choose(const CommunicatorOptions& options);
  const Algorithm& algorithm_for(const Request& request) const;
  RankLink& link(StepPlan plan, std::size_t bytes, std::size_t scratch, const std::string& what);
  void unlink(const RankLink& link) noexcept;

  std::unique_ptr<engine::Ops> ops_;
  Job job_;
  bool reproducible_;
  std::vector<SizeRule> rules_;
  std::optional<Choices> choices_;
  std::string algorithm_, costs_are_;
  std::deque<std::unique_ptr<RankLink>> links_;
  RankLink* area_ = nullptr;  // compares calls; most frequent sums
  std::map<std::pair<engine::DType, Reduce>, RankLink*> areas_;  // other types and operations
  std::vector<Owned> owned_;
  std::size_t buckets_made_ = 0;
  std::array<double, 5> described_ = {};               // the call that purpose_ describes
  std::string purpose_;                                // text of the current call, for errors
  std::optional<engine::Clock::time_point> end_ = {};  // end of the current call's own deadline
  int exceptions_;                                     // uncaught exceptions at construction
};

}  // namespace lockstep::collectives
