// SPDX-License-Identifier: MIT
// EXPERIMENTAL: names and options may change until the collectives are complete.
//
// For programs with a training loop of their own: sums over ranks, on plain memory, without a
// graph. Each rank is one process of the job, or one thread (`run_ranks`). All ranks make the same
// calls in the same order; a call that differs (another count, type, operation, root, or another
// call) is an Error(kInvalid) on all ranks, at that call, and the communicator can be used on.
//
//   lockstep::Session session(argc, argv);
//   auto communicator = lockstep::communicator(session);
//   communicator.all_reduce(std::span(gradient), lockstep::Reduce::kMean);
//
// Elements are float, double, std::int32_t, std::int64_t, Half (IEEE's 16 bits) or BFloat16.
//
// One thread at a time uses it, and its buckets. Every wait has the deadline of the options: what
// is thrown names the call, who arrived and who did not (kTimeout), or who died (kPeerLost). After
// that every later call throws the same at once. A communicator that is destroyed by an exception
// tells the others; so do buckets that are destroyed while they are in flight.
//
// Cost: each call first compares what is asked for (on one host some microseconds). Memory from
// `allocate` is reduced where it lies; other memory is copied through a mapped area of 2 MiB, piece
// by piece. What is neither a sum nor a mean, or not of float or double, has such an area for each
// type and operation, mapped by the first call. The bits of a sum are the same on all ranks, and
// the same again for the same ranks; between hosts also for the same costs.
//
// Half and BFloat16 are added as float32 and rounded to the nearest, of two as near the even one:
// once where all ranks are on one host. Between hosts partial sums are kept in the elements' type:
// of n ranks they are rounded n - 1 times at most, so that the result is within (n - 1) u times the
// sum of all sizes, where u is 2^-11 for Half and 2^-8 for BFloat16.
//
// Reproducible: sums and means of floating point have the same bits by every algorithm, on every
// layout of so many ranks, in every order of them. They are added in fixed point
// (engine/ops/fixed_point.h), which is exact: each block of 1024 elements, counted from the
// beginning of the span, on a grid that its largest number over all ranks makes. Relative to that
// number an element keeps at least 2^-(62 - log2 n) of n ranks (float64: 2^-(125 - 2 log2 n)), and
// the sum is rounded once, of 16 bits too. A NaN in makes a NaN out, always the same one, so do
// both infinities; one of them stays. A sum that is zero is +0. Minima and maxima are reproducible
// but for the sign of zero and the bits of NaN, which are made the same; products are refused.
// Costs an all-reduce more, of 8 bytes a block, and in the sum 8 bytes an element (float64: 16);
// everything is copied.
//
// The planner (collectives/cost/planner.h) chooses the algorithm of each size: on one host direct
// or one shot, which alone add in the order of ranks and round once; between hosts any. It goes by
// what is kept in `cost_cache` of such ranks, else by costs that are assumed; nothing is measured.
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

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/bootstrap/bootstrap.h"
#include "collectives/cost/planner.h"
#include "collectives/cost/size_rules.h"
#include "collectives/job/job.h"
#include "collectives/job/rank_link.h"

namespace lockstep::collectives {

struct RankCall;

// Of integers there is no mean, and they wrap around. Of minima and maxima a number that is none
// (NaN) wins over all numbers.
enum class Reduce { kSum, kMean, kMin, kMax, kProduct };

template <class T>
concept Element = std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t> ||
    std::same_as<T, engine::Half> || std::same_as<T, engine::BFloat16>;
// A std::span, a std::vector or an array of such elements, to be written.
template <class Values>
concept Elements = std::ranges::contiguous_range<Values> &&
    Element<std::remove_reference_t<std::ranges::range_reference_t<Values>>>;

template <class Values>
auto span_of(Values& values) {
  return std::span<std::ranges::range_value_t<Values>>(values);
}

struct CommunicatorOptions {
  std::chrono::milliseconds deadline{60000};  // of every wait for another rank
  // Of the first process: folder of measured costs, as `lockstep plan` and strategies keep them;
  // empty: they are assumed.
  std::filesystem::path cost_cache = {};
  // Instead of the planner's choice: a name, or names by size (collectives/cost/size_rules.h), of
  // the bytes that are sent.
  std::string algorithm = "auto";
  bool reproducible = false;  // the same on all ranks, else no communicator is made
};

class Communicator {
 public:
  // Collective. The bootstrap outlives the communicator, which owns `ops`.
  Communicator(Bootstrap& bootstrap, std::unique_ptr<engine::Ops> ops,
               const CommunicatorOptions& options = {}, const Network& network = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return job_.rank(); }
  int size() const { return job_.size(); }
  std::string algorithm() const { return algorithm_; }  // of long sums: "direct", "ring"
  // Which algorithm from how many bytes on, and why; by which costs.
  std::string explain() const;

  // Of one call, instead of the options' deadline: shorter or longer, and of the call as a whole.
  using Deadline = std::optional<std::chrono::milliseconds>;

  // Sums, or as `operation` says, in place. The mean is the sum times 1 / size. Empty spans are an
  // ordinary case.
  template <Elements Values>
  void all_reduce(Values&& values, Reduce operation = Reduce::kSum, Deadline deadline = {}) {
    reduce(span_of(values), operation, deadline);
  }
  // The root's values on all ranks, bit for bit (but that signalling NaNs become quiet).
  template <Elements Values>
  void broadcast(Values&& values, int root = 0, Deadline deadline = {}) {
    spread(span_of(values), root, deadline);
  }
  void barrier(Deadline deadline = {});

  // Memory that all ranks of a host map, zeroed, this rank's part: a sum or a mean of the whole of
  // it copies nothing. Read as elements of another type it is as any other memory. Collective. It
  // lives as long as the communicator.
  template <Element T>
  std::span<T> allocate(std::size_t count);

  // This rank gives up: all ranks throw `why` from their next or present call. kPeerLost says that
  // a rank is dead: then no session waits at its end for the others.
  void abort(const engine::Error& why) noexcept;

 private:
  template <class T>
  friend class Buckets;
  struct Owned {  // what `allocate` gave
    const void* data = nullptr;
    engine::DType dtype{};  // which its plans are for
    std::size_t count = 0;
    RankLink* link = nullptr;
  };
  template <class T>
  void reduce(std::span<T> values, Reduce operation, Deadline deadline);
  template <class T>
  void spread(std::span<T> values, int root, Deadline deadline);
  void agree(const RankCall& mine, Deadline deadline = {});
  // Of an error that all ranks have found: throws it when all of them have.
  [[noreturn]] void fail_together(const std::string& what);
  void run(RankLink& link, int plan, std::string_view purpose);
  // What fails on one link ends all, here and on all other ranks: they are not at one any more.
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (const std::exception& error) {
      abort(engine::as_error(error));
      throw;
    }
  }
  // For destructors: aborts as "rank 2 <how>".
  void leave(std::string_view how) noexcept;
  // Mapped memory for pieces of values, and plans over it, one for each length.
  struct Area {
    RankLink* link = nullptr;
    std::size_t begin = 0;  // bytes
    int plan = 0;           // of the shortest
  };
  // Collective where it is the first of its type and operation.
  Area area(engine::DType dtype, Reduce operation);
  // Adds a plan, or one for each length, behind `scratch` bytes of scratch.
  void add(StepPlan& plan, std::size_t& scratch, Request request) const;
  void add_pieces(StepPlan& plan, std::size_t& scratch, engine::DType dtype, Reduce operation,
                  std::size_t begin) const;
  // Runs the plan of an area that has room for so many elements, of which the others become zero.
  template <class T>
  void run_piece(const Area& area, std::size_t count);
  // Of floating point, all but products.
  template <class T>
  void reduce_reproducibly(std::span<T> values, Reduce operation);
  template <class T>
  void sum_in_fixed_point(std::span<T> values, Reduce operation);
  // Through an area, piece by piece; a silent rank adds nothing.
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
  RankLink* area_ = nullptr;  // comparing calls, and what is summed most often
  std::map<std::pair<engine::DType, Reduce>, RankLink*> areas_;  // of all else
  std::vector<Owned> owned_;
  std::size_t buckets_made_ = 0;
  std::array<double, 5> described_ = {};               // the call that purpose_ is of
  std::string purpose_;                                // of the present call, for errors
  std::optional<engine::Clock::time_point> end_ = {};  // of the present call, where it has its own
  int exceptions_;                                     // on their way when it was made
};

}  // namespace lockstep::collectives
