// SPDX-License-Identifier: MIT
// The first area holds a table in which ranks compare their calls, then one piece of memory. Its
// plans sum several lengths: 1, 4, 16, 64 and 256 blocks, as float32 and float64, as sum and as
// mean. Shorter values are padded with zeros. Other types and operations have their own areas, made
// at first use: few programs need them, and plans take memory and time.
#include "collectives/communicator/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <limits>
#include <type_traits>

#include "collectives/communicator/rank_call.h"
#include "collectives/memory/mapped_memory.h"
#include "engine/base/error.h"
#include "engine/ops/fixed_point.h"

namespace lockstep::collectives {

using engine::Code;
using engine::DType;
using engine::require;

namespace {

constexpr std::array<std::size_t, 5> kBlocks{1, 4, 16, 64, 256};
constexpr std::size_t kLongestPiece = kBlocks.back() * engine::kBlock;  // elements
constexpr int kCompare = 0;  // the plan that compares calls

// Types and operations that the first area has plans for, in their order behind kCompare.
constexpr std::array kFirst{
    std::pair(DType::kFloat32, Reduce::kSum), std::pair(DType::kFloat32, Reduce::kMean),
    std::pair(DType::kFloat64, Reduce::kSum), std::pair(DType::kFloat64, Reduce::kMean)};

// Returns the canonical form of `x`. Zeros and NaNs have several forms each, and the order of a
// reduction decides between them.
template <class T>
T one_of_many(T x) {
  if (x == 0) return T{};
  return x == x ? x : T(std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

Communicator::Communicator(Bootstrap& bootstrap, std::unique_ptr<engine::Ops> ops,
                           const CommunicatorOptions& options, const Network& network)
    : ops_(std::move(ops)),
      job_(rank_of_each_process(bootstrap), {.deadline = options.deadline, .network = network}),
      reproducible_(options.reproducible),
      exceptions_(std::uncaught_exceptions()) {
  choose(options);
  const std::size_t table = std::size_t(size()) * RankCall::kNumbers;
  const std::size_t begin = whole_pages(table * sizeof(double));
  StepPlan plan;
  std::size_t scratch = 0;
  // Ranks that differ in the option have different plans, since the names differ.
  Request compare = request(reproducible_ ? "comparing calls, reproducible" : "comparing calls",
                            DType::kFloat64, Reduce::kSum);
  compare.subject = {0, table};
  add(plan, scratch, std::move(compare));
  for (const auto& [dtype, operation] : kFirst) add_pieces(plan, scratch, dtype, operation, begin);
  algorithm_ = plan.back().plan.algorithm;
  area_ = &link(std::move(plan), begin + kLongestPiece * sizeof(double), scratch, "communicator");
}

Communicator::~Communicator() {
  if (std::uncaught_exceptions() > exceptions_) leave("ended with an error of its own");
  job_.release();
}

Request Communicator::request(std::string name, DType dtype, Reduce operation) const {
  Request made;
  made.name = std::move(name);
  made.dtype = dtype;
  made.op = operation == Reduce::kMin       ? ReduceOp::kMin
            : operation == Reduce::kMax     ? ReduceOp::kMax
            : operation == Reduce::kProduct ? ReduceOp::kProduct
                                            : ReduceOp::kSum;
  made.mean = operation == Reduce::kMean;
  made.host = job_.ranks().host;
  return made;
}

// Gives each plan its own scratch memory, since what one leaves there may still be read.
void Communicator::add(StepPlan& plan, std::size_t& scratch, Request request) const {
  const std::size_t width = engine::size_of(request.dtype);
  request.scratch = scratch / width;
  const Algorithm& algorithm = algorithm_for(request);
  plan.push_back({algorithm.make(request), {}, false});
  scratch += whole_pages(algorithm.scratch(request) * width);
}

void Communicator::add_pieces(StepPlan& plan, std::size_t& scratch, DType dtype, Reduce operation,
                              std::size_t begin) const {
  const std::size_t first = begin / engine::size_of(dtype);
  for (const std::size_t blocks : kBlocks) {
    Request piece = request("a piece", dtype, operation);
    piece.subject = {first, first + blocks * engine::kBlock};
    add(plan, scratch, std::move(piece));
  }
}

Communicator::Area Communicator::area(DType dtype, Reduce operation) {
  const auto first = std::find(kFirst.begin(), kFirst.end(), std::pair(dtype, operation));
  if (first != kFirst.end()) {
    const std::size_t table = std::size_t(size()) * RankCall::kNumbers * sizeof(double);
    return {area_, whole_pages(table), 1 + int(first - kFirst.begin()) * int(kBlocks.size())};
  }
  RankLink*& own = areas_[{dtype, operation}];
  if (own == nullptr) {
    StepPlan plan;
    std::size_t scratch = 0;
    add_pieces(plan, scratch, dtype, operation, 0);
    own = &link(std::move(plan), kLongestPiece * engine::size_of(dtype), scratch, "communicator");
  }
  return {own, 0, 0};
}

RankLink& Communicator::link(StepPlan plan, std::size_t bytes, std::size_t scratch,
                             const std::string& what) {
  // Checks first, so that this rank does not wait for ranks that will not come.
  if (area_ != nullptr) guarded([&] { area_->check(); });
  links_.push_back(std::make_unique<RankLink>(job_, *ops_, std::move(plan), bytes, scratch, what));
  return *links_.back();
}

void Communicator::unlink(const RankLink& link) noexcept {
  std::erase_if(links_, [&](const auto& one) { return one.get() == &link; });
}

// Stops the job and tells the peers, even if a neighbor reports a death before the job's own watch.
void Communicator::abort(const engine::Error& why) noexcept {
  job_.stop(why);
  for (const auto& link : links_) link->executor().tell_peers();
}

void Communicator::leave(std::string_view how) noexcept {
  try {
    abort({Code::kAborted, fmt::format("rank {} {}", rank(), how)});
  } catch (const std::exception&) {  // no memory for the text
    abort({Code::kAborted, {}});
  }
}

void Communicator::run(RankLink& link, int plan, std::string_view purpose) {
  guarded([&] {
    link.start(plan);
    if (!end_) return link.executor().wait(plan, purpose);
    const auto left =
        std::max(std::chrono::milliseconds(1),
                 std::chrono::ceil<std::chrono::milliseconds>(*end_ - engine::Clock::now()));
    link.executor().set_deadline(std::max(job_.deadline(), left));
    link.executor().wait(plan, purpose, left);
    link.executor().set_deadline(job_.deadline());
  });
}

// Compares calls in a table with one row per rank. Each rank fills in its own row, and the sum
// shows all rows to all ranks.
void Communicator::agree(const RankCall& mine, Deadline deadline) {
  require(!deadline || deadline->count() > 0, "the deadline of a call must be positive");
  end_.reset();
  if (deadline) end_ = engine::Clock::now() + *deadline;
  constexpr std::size_t n = RankCall::kNumbers;
  const auto numbers = mine.numbers();
  auto* table = reinterpret_cast<double*>(area_->data());
  std::fill_n(table, n * std::size_t(size()), 0.0);
  std::copy(numbers.begin(), numbers.end(), table + n * std::size_t(rank()));
  if (purpose_.empty() || numbers != described_) {  // else it is the last call's
    purpose_.clear();
    mine.describe_with_bytes(purpose_);
    described_ = numbers;
  }
  run(*area_, kCompare, purpose_);
  for (std::size_t other = 1; other < std::size_t(size()); ++other)
    if (!std::equal(table, table + n, table + other * n))
      fail_together(
          fmt::format("ranks ask for different things: rank 0 for {}, rank {} for {}; all ranks "
                      "must make the same calls in the same order",
                      RankCall::describe(table), other, RankCall::describe(table + other * n)));
}

// Compares once more before it throws: a rank that throws may leave, with buckets in flight, and so
// end the waits of all. Once this comparison completes here, all ranks have begun it, so each has
// found `what` by itself.
void Communicator::fail_together(const std::string& what) {
  try {
    run(*area_, kCompare, "an error of all ranks");
  } catch (const engine::Error&) {  // others left or died; `what` is the cause
  }
  engine::fail(Code::kInvalid, "{}", what);
}

template <class T>
void Communicator::run_piece(const Area& at, std::size_t count) {
  T* const area = reinterpret_cast<T*>(at.link->data() + at.begin);
  const std::size_t length =
      std::size_t(std::find_if(kBlocks.begin(), kBlocks.end(),
                               [&](std::size_t b) { return b * engine::kBlock >= count; }) -
                  kBlocks.begin());
  std::fill(area + count, area + kBlocks[length] * engine::kBlock, T{});
  run(*at.link, at.plan + int(length), purpose_);
}

// Reduces through the area. A `silent` rank contributes -0, since -0 + x is x for every x, -0 and
// +0 too.
template <class T>
void Communicator::through_area(std::span<T> values, Reduce operation, bool silent) {
  if (values.empty()) return;
  const Area at = this->area(engine::dtype_of<T>(), operation);
  T* const area = reinterpret_cast<T*>(at.link->data() + at.begin);
  for (std::size_t done = 0; done < values.size();) {
    const std::span<T> piece = values.subspan(done, std::min(values.size() - done, kLongestPiece));
    if (silent) {
      std::fill_n(area, piece.size(), T(-0.0f));
    } else {
      std::copy(piece.begin(), piece.end(), area);
    }
    run_piece<T>(at, piece.size());
    std::copy_n(area, piece.size(), piece.begin());
    done += piece.size();
  }
}

template void Communicator::through_area(std::span<double>, Reduce, bool);

// Sums infinities and NaNs separately, in the elements' type. In sums of zeros, infinities and NaNs
// only the bits of a NaN depend on the order. Few calls have any.
template <class T>
void Communicator::sum_in_fixed_point(std::span<T> values, Reduce operation) {
  constexpr DType kType = engine::dtype_of<T>();
  constexpr std::size_t kLimbs = engine::fixed_limbs(kType), kMost = kLongestPiece / kLimbs;
  const auto finite = [](T x) { return x - x == 0; };
  if (values.empty()) return;
  std::vector<std::int32_t> extents;  // two numbers per block
  for (std::size_t begin = 0; begin < values.size(); begin += engine::kBlock) {
    const std::size_t count = std::min(engine::kBlock, values.size() - begin);
    const auto mine =
        engine::fixed_extent(kType, reinterpret_cast<std::byte*>(&values[begin]), count);
    extents.insert(extents.end(), {mine.exponent, mine.unusual});
  }
  through_area(std::span(extents), Reduce::kMax, false);
  const Area at = area(DType::kInt64, Reduce::kSum);
  auto* const whole = reinterpret_cast<std::int64_t*>(at.link->data() + at.begin);
  const double scale = operation == Reduce::kMean ? 1.0 / size() : 1;
  for (std::size_t done = 0; done < values.size(); done += kMost) {
    const std::span<T> piece = values.subspan(done, std::min(kMost, values.size() - done));
    std::int64_t* const rest = whole + (kLimbs - 1) * piece.size();
    std::vector<T> unusual;
    const auto each_block = [&](const auto& body) {
      for (std::size_t begin = 0; begin < piece.size(); begin += engine::kBlock) {
        const std::int32_t* const extent = &extents[(done + begin) / engine::kBlock * 2];
        if (extent[1] != 0) unusual.resize(piece.size());
        body(begin, std::min(engine::kBlock, piece.size() - begin),
             engine::FixedGrid{extent[0], engine::fixed_bits(size())});
      }
    };
    each_block([&](std::size_t begin, std::size_t count, engine::FixedGrid grid) {
      engine::to_fixed(kType, reinterpret_cast<std::byte*>(&piece[begin]), count, grid,
                       whole + begin, rest + begin);
    });
    run_piece<std::int64_t>(at, kLimbs * piece.size());
    if (!unusual.empty()) {
      std::transform(piece.begin(), piece.end(), unusual.begin(),
                     [&](T x) { return finite(x) ? T{} : x; });
      through_area(std::span(unusual), Reduce::kSum, false);
    }
    each_block([&](std::size_t begin, std::size_t count, engine::FixedGrid grid) {
      engine::from_fixed(kType, whole + begin, rest + begin, count, grid, scale,
                         reinterpret_cast<std::byte*>(&piece[begin]));
    });
    for (std::size_t i = 0; i < unusual.size(); ++i)
      if (!finite(unusual[i])) piece[i] = one_of_many(unusual[i]);
  }
}

template <class T>
void Communicator::reduce_reproducibly(std::span<T> values, Reduce operation) {
  if (operation == Reduce::kSum || operation == Reduce::kMean)
    return sum_in_fixed_point(values, operation);
  through_area(values, operation, false);
  std::transform(values.begin(), values.end(), values.begin(), one_of_many<T>);
}

template void Communicator::reduce_reproducibly(std::span<float>, Reduce);
template void Communicator::reduce_reproducibly(std::span<double>, Reduce);
template void Communicator::reduce_reproducibly(std::span<engine::Half>, Reduce);
template void Communicator::reduce_reproducibly(std::span<engine::BFloat16>, Reduce);

template <class T>
void Communicator::reduce(std::span<T> values, Reduce operation, Deadline deadline) {
  RankCall call{RankCall::Kind::kAllReduce, engine::dtype_of<T>(), int(operation), values.size(),
                0};
  const auto owned = std::find_if(owned_.begin(), owned_.end(), [&](const Owned& o) {
    return o.data == values.data() && o.dtype == call.dtype && o.count == values.size() &&
           !values.empty();
  });
  if (owned != owned_.end()) call.memory = std::size_t(owned - owned_.begin()) + 1;
  agree(call, deadline);
  if (operation == Reduce::kMean && engine::is_integer(call.dtype))
    fail_together(fmt::format("the mean of {} is no {}; ask for the sum", engine::name(call.dtype),
                              engine::name(call.dtype)));
  if constexpr (!std::is_integral_v<T>) {
    if (reproducible_ && operation == Reduce::kProduct)
      fail_together(
          "products of floating point are not reproducible: their bits depend on the order of the "
          "factors; ask for sums, means, minima or maxima, or for no reproducible ones");
    if (reproducible_) return reduce_reproducibly(values, operation);
  }
  const bool planned = operation == Reduce::kSum || operation == Reduce::kMean;
  if (call.memory != 0 && planned) return run(*owned->link, int(operation), purpose_);
  through_area(values, operation, false);
}

template void Communicator::reduce(std::span<float>, Reduce, Deadline);
template void Communicator::reduce(std::span<double>, Reduce, Deadline);
template void Communicator::reduce(std::span<std::int32_t>, Reduce, Deadline);
template void Communicator::reduce(std::span<std::int64_t>, Reduce, Deadline);
template void Communicator::reduce(std::span<engine::Half>, Reduce, Deadline);
template void Communicator::reduce(std::span<engine::BFloat16>, Reduce, Deadline);

template <class T>
void Communicator::spread(std::span<T> values, int root, Deadline deadline) {
  agree({RankCall::Kind::kBroadcast, engine::dtype_of<T>(), root, values.size(), 0}, deadline);
  if (root < 0 || root >= size())
    fail_together(fmt::format("broadcast from rank {}: there are ranks 0 to {}", root, size() - 1));
  through_area(values, Reduce::kSum, rank() != root);
}

template void Communicator::spread(std::span<float>, int, Deadline);
template void Communicator::spread(std::span<double>, int, Deadline);
template void Communicator::spread(std::span<std::int32_t>, int, Deadline);
template void Communicator::spread(std::span<std::int64_t>, int, Deadline);
template void Communicator::spread(std::span<engine::Half>, int, Deadline);
template void Communicator::spread(std::span<engine::BFloat16>, int, Deadline);

void Communicator::barrier(Deadline deadline) {
  agree({}, deadline);
}

template <Element T>
std::span<T> Communicator::allocate(std::size_t count) {
  constexpr DType kType = engine::dtype_of<T>();
  agree({RankCall::Kind::kAllocate, kType, 0, count, 0});
  if (count == 0) return {};
  StepPlan plan;
  std::size_t scratch = 0;
  for (const Reduce operation : {Reduce::kSum, Reduce::kMean}) {  // in their order
    if (operation == Reduce::kMean && engine::is_integer(kType)) continue;
    Request whole = request("allocated memory", kType, operation);
    whole.subject = {0, count};
    add(plan, scratch, std::move(whole));
  }
  RankLink& made = link(std::move(plan), count * sizeof(T), scratch, "allocated memory");
  owned_.push_back({made.data(), kType, count, &made});
  return {reinterpret_cast<T*>(made.data()), count};
}

template std::span<float> Communicator::allocate<float>(std::size_t);
template std::span<double> Communicator::allocate<double>(std::size_t);
template std::span<std::int32_t> Communicator::allocate<std::int32_t>(std::size_t);
template std::span<std::int64_t> Communicator::allocate<std::int64_t>(std::size_t);
template std::span<engine::Half> Communicator::allocate<engine::Half>(std::size_t);
template std::span<engine::BFloat16> Communicator::allocate<engine::BFloat16>(std::size_t);

}  // namespace lockstep::collectives
