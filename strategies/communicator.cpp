// SPDX-License-Identifier: MIT
// The area: a table in which ranks compare their calls, then one piece of memory on which sums of
// several lengths are planned (1, 4, 16, 64, 256 blocks, each as float32 and float64, as sum and as
// mean). Lengths between are filled up with zeros. Other types and operations have areas of their
// own, made when they are first asked for: few programs need them, and plans take room and time.
#include "strategies/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <iterator>

#include "collectives/size_rules.h"
#include "collectives/topology.h"
#include "engine/base/error.h"
#include "strategies/calibration.h"

namespace lockstep::strategies {

using collectives::Request;
using collectives::StepPlan;
using engine::Code;
using engine::DType;
using engine::require;

namespace {

constexpr std::array<std::size_t, 5> kBlocks{1, 4, 16, 64, 256};
constexpr std::size_t kLongest = kBlocks.back() * engine::kBlock;  // elements
constexpr std::size_t kPage = 4096;
constexpr int kCompare = 0;  // the plan in which calls are compared

// Of a process's rank, as `lockstep plan` names it: costs are kept by that name.
constexpr const char* kDevice = "cpu:0";
// Bytes that the planner prices; between them, and beyond, it draws lines.
constexpr std::array<std::size_t, 10> kPriced{1 << 8,  1 << 10, 1 << 12, 1 << 14, 1 << 16,
                                              1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};

enum class Kind { kAllReduce = 1, kBroadcast, kBarrier, kAllocate };

std::string_view name(Reduce operation) {
  static constexpr std::array<std::string_view, 5> kNames{"sum", "mean", "min", "max", "product"};
  return kNames[std::size_t(operation)];
}

// What the first area has plans for, in their order behind that for comparing.
constexpr std::array kFirst{
    std::pair(DType::kFloat32, Reduce::kSum), std::pair(DType::kFloat32, Reduce::kMean),
    std::pair(DType::kFloat64, Reduce::kSum), std::pair(DType::kFloat64, Reduce::kMean)};

std::size_t page_end(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

// What a rank asks for: small whole numbers, so that a sum with zeros carries them exactly.
struct Communicator::Call {
  static constexpr std::size_t kNumbers = 5;
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kFloat32;
  int detail = 0;  // the operation, or the root
  std::size_t count = 0;
  std::size_t memory = 0;  // 0: the caller's own; else which of `allocate`

  std::array<double, kNumbers> numbers() const {
    return {double(kind), double(dtype), double(detail), double(count), double(memory)};
  }
  static std::string describe(const double* n) {
    std::string text;
    describe(n, text);
    return text;
  }
  // Behind what `text` has.
  static void describe(const double* n, std::string& text) {
    const auto count = std::size_t(n[3]);
    const auto type = engine::name(DType(int(n[1])));
    const auto out = std::back_inserter(text);
    switch (Kind(int(n[0]))) {
      case Kind::kAllReduce:
        fmt::format_to(out, "all_reduce of {} {} ({}", count, type, name(Reduce(int(n[2]))));
        if (n[4] != 0) fmt::format_to(out, ", in allocated memory {}", int(n[4]));
        text += ")";
        return;
      case Kind::kBroadcast:
        fmt::format_to(out, "broadcast of {} {} from rank {}", count, type, int(n[2]));
        return;
      case Kind::kAllocate:
        fmt::format_to(out, "allocate of {} {}", count, type);
        return;
      case Kind::kBarrier:
        text += "barrier";
        return;
    }
    text += "something else";
  }
};

Communicator::Communicator(collectives::Bootstrap& bootstrap, std::unique_ptr<engine::Ops> ops,
                           const CommunicatorOptions& options, const Network& network)
    : ops_(std::move(ops)),
      ranks_{rank_of_each_process(bootstrap), *ops_, options.deadline, network},
      exceptions_(std::uncaught_exceptions()) {
  require(options.deadline.count() > 0, "the deadline must be positive");
  watch_ = std::make_unique<collectives::PeerWatch>(
      [this](const std::string& who, int pid) { lost(who, pid); });
  watch_host(ranks_, "processes of the ranks", *watch_);
  choose(options);
  const std::size_t table = std::size_t(size()) * Call::kNumbers;
  const std::size_t begin = page_end(table * sizeof(double));
  StepPlan plan;
  std::size_t scratch = 0;
  Request compare = request("comparing calls", DType::kFloat64, Reduce::kSum);
  compare.subject = {0, table};
  add(plan, scratch, std::move(compare));
  for (const auto& [dtype, operation] : kFirst) add_pieces(plan, scratch, dtype, operation, begin);
  algorithm_ = plan.back().plan.algorithm;
  area_ = &link(std::move(plan), begin + kLongest * sizeof(double), scratch, "communicator");
}

Communicator::~Communicator() {
  if (std::uncaught_exceptions() > exceptions_) leave("ended with an error of its own");
  watch_->release();
  watch_.reset();
}

Request Communicator::request(std::string name, DType dtype, Reduce operation) const {
  using collectives::ReduceOp;
  Request made;
  made.name = std::move(name);
  made.dtype = dtype;
  made.op = operation == Reduce::kMin       ? ReduceOp::kMin
            : operation == Reduce::kMax     ? ReduceOp::kMax
            : operation == Reduce::kProduct ? ReduceOp::kProduct
                                            : ReduceOp::kSum;
  made.mean = operation == Reduce::kMean;
  made.host = ranks_.host;
  return made;
}

// Scratch is each plan's own, since what one leaves may still be read.
void Communicator::add(StepPlan& plan, std::size_t& scratch, Request request) const {
  const std::size_t width = engine::size_of(request.dtype);
  request.scratch = scratch / width;
  const collectives::Algorithm& algorithm = algorithm_for(request);
  plan.push_back({algorithm.make(request), {}, false});
  scratch += page_end(algorithm.scratch(request) * width);
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
    const std::size_t table = std::size_t(size()) * Call::kNumbers * sizeof(double);
    return {area_, page_end(table), 1 + int(first - kFirst.begin()) * int(kBlocks.size())};
  }
  RankLink*& own = areas_[{dtype, operation}];
  if (own == nullptr) {
    StepPlan plan;
    std::size_t scratch = 0;
    add_pieces(plan, scratch, dtype, operation, 0);
    own = &link(std::move(plan), kLongest * engine::size_of(dtype), scratch, "communicator");
  }
  return {own, 0, 0};
}

// What the planner is asked before anything is summed. On one host only those that promise what the
// header does; the others move more memory there.
void Communicator::choose(const CommunicatorOptions& options) {
  std::vector<collectives::Algorithm> candidates;
  for (const collectives::Algorithm& algorithm : collectives::all_reduce_algorithms())
    if (!ranks_.one_host() || algorithm.name == "direct" || algorithm.name == "one_shot")
      candidates.push_back(algorithm);
  collectives::Topology topology = collectives::discover(ranks_.bootstrap, {kDevice});
  CalibrationOptions stored;
  stored.network = ranks_.network;
  stored.cache = options.cost_cache;
  const Calibration found = stored_costs(ranks_.bootstrap, topology, stored);
  topology = found.topology;
  costs_are_ = topology.costs_are + (found.note.empty() ? "" : " (" + found.note + ")");
  choices_ = collectives::plan_all_reduce(topology, candidates, {},
                                          {kPriced.begin(), kPriced.end()}, &ranks_.bootstrap);
}

std::string Communicator::explain() const {
  std::string text = "all-reduce: ", before;
  for (const collectives::Choice& choice : choices_->table()) {
    if (choice.algorithm == before) continue;
    text += fmt::format("{}{} from {} on, because {}", before.empty() ? "" : "; ", choice.algorithm,
                        collectives::size_text(choice.bytes), choice.reason);
    before = choice.algorithm;
  }
  return fmt::format("{}\ncosts of ranks and links: {}", text, costs_are_);
}

const collectives::Algorithm& Communicator::algorithm_for(const Request& request) const {
  const std::size_t bytes = request.subject.size() * engine::size_of(request.dtype);
  return collectives::find_algorithm(choices_->choose(bytes).algorithm);
}

RankLink& Communicator::link(StepPlan plan, std::size_t bytes, std::size_t scratch,
                             const std::string& what) {
  // Before others are waited for who do not come any more.
  if (area_ != nullptr) guarded([&] { area_->check(); });
  auto made = std::make_unique<RankLink>(ranks_, std::move(plan), bytes, scratch, what);
  std::scoped_lock lock(mutex_);
  links_.push_back(std::move(made));
  if (lost_) links_.back()->stop(Code::kPeerLost, *lost_);
  return *links_.back();
}

void Communicator::unlink(const RankLink& link) noexcept {
  std::scoped_lock lock(mutex_);
  std::erase_if(links_, [&](const auto& one) { return one.get() == &link; });
}

void Communicator::lost(const std::string& who, int pid) noexcept {
  std::scoped_lock lock(mutex_);
  if (!lost_) lost_ = fmt::format("{} (process {}) died", who, pid);
  for (const auto& link : links_) link->stop(Code::kPeerLost, *lost_);
  ranks_.bootstrap.abandon(Code::kPeerLost, *lost_);  // a link may just be made
}

void Communicator::abort(Code code, const std::string& why) noexcept {
  std::scoped_lock lock(mutex_);
  for (const auto& link : links_) link->stop(code, why);
  for (const auto& link : links_) link->executor().tell_peers();
}

void Communicator::leave(std::string_view how) noexcept {
  try {
    abort(Code::kAborted, fmt::format("rank {} {}", rank(), how));
  } catch (const std::exception&) {  // no memory for the text
    abort(Code::kAborted, {});
  }
}

void Communicator::run(RankLink& link, int plan, std::string_view purpose) {
  guarded([&] {
    link.start(plan);
    if (!end_) return link.executor().wait(plan, purpose);
    const auto left =
        std::max(std::chrono::milliseconds(1),
                 std::chrono::ceil<std::chrono::milliseconds>(*end_ - engine::Clock::now()));
    link.executor().set_deadline(std::max(ranks_.deadline, left));
    link.executor().wait(plan, purpose, left);
    link.executor().set_deadline(ranks_.deadline);
  });
}

// A row for each rank; everybody fills in its own, and the sum shows all of them to all.
void Communicator::agree(const Call& mine, Deadline deadline) {
  require(!deadline || deadline->count() > 0, "the deadline of a call must be positive");
  end_.reset();
  if (deadline) end_ = engine::Clock::now() + *deadline;
  constexpr std::size_t n = Call::kNumbers;
  const auto numbers = mine.numbers();
  auto* table = reinterpret_cast<double*>(area_->data());
  std::fill_n(table, n * std::size_t(size()), 0.0);
  std::copy(numbers.begin(), numbers.end(), table + n * std::size_t(rank()));
  if (purpose_.empty() || numbers != described_) {  // else it is the last call's
    purpose_.clear();
    Call::describe(numbers.data(), purpose_);
    fmt::format_to(std::back_inserter(purpose_), ", {} bytes",
                   mine.count * engine::size_of(mine.dtype));
    described_ = numbers;
  }
  run(*area_, kCompare, purpose_);
  for (std::size_t other = 1; other < std::size_t(size()); ++other)
    if (!std::equal(table, table + n, table + other * n))
      fail_together(
          fmt::format("ranks ask for different things: rank 0 for {}, rank {} for {}; all ranks "
                      "must make the same calls in the same order",
                      Call::describe(table), other, Call::describe(table + other * n)));
}

// Who throws may leave, with buckets in flight, and so end the waits of all. So one more comparison
// comes first: when it is through here, all ranks have begun it, and each knows `what` by itself.
void Communicator::fail_together(const std::string& what) {
  try {
    run(*area_, kCompare, "an error of all ranks");
  } catch (const engine::Error&) {  // others have left already, or died: `what` is still the cause
  }
  engine::fail(Code::kInvalid, "{}", what);
}

// `silent`: this rank adds nothing (-0, since -0 + x is x for every x, -0 and +0 too).
template <class T>
void Communicator::through_area(std::span<T> values, Reduce operation, bool silent) {
  if (values.empty()) return;
  const Area at = this->area(engine::dtype_of<T>(), operation);
  T* const area = reinterpret_cast<T*>(at.link->data() + at.begin);
  for (std::size_t done = 0; done < values.size();) {
    const std::span<T> piece = values.subspan(done, std::min(values.size() - done, kLongest));
    const std::size_t length = std::size_t(
        std::find_if(kBlocks.begin(), kBlocks.end(),
                     [&](std::size_t b) { return b * engine::kBlock >= piece.size(); }) -
        kBlocks.begin());
    if (silent) {
      std::fill_n(area, kBlocks[length] * engine::kBlock, T(-0.0f));
    } else {
      std::copy(piece.begin(), piece.end(), area);
      std::fill(area + piece.size(), area + kBlocks[length] * engine::kBlock, T{});
    }
    run(*at.link, at.plan + int(length), purpose_);
    std::copy_n(area, piece.size(), piece.begin());
    done += piece.size();
  }
}

template <class T>
void Communicator::reduce(std::span<T> values, Reduce operation, Deadline deadline) {
  Call call{Kind::kAllReduce, engine::dtype_of<T>(), int(operation), values.size(), 0};
  const auto owned = std::find_if(owned_.begin(), owned_.end(), [&](const Owned& o) {
    return o.data == values.data() && o.count == values.size() && !values.empty();
  });
  if (owned != owned_.end()) call.memory = std::size_t(owned - owned_.begin()) + 1;
  agree(call, deadline);
  if (operation == Reduce::kMean && engine::is_integer(call.dtype))
    fail_together(fmt::format("the mean of {} is no {}; ask for the sum", engine::name(call.dtype),
                              engine::name(call.dtype)));
  const bool planned = operation == Reduce::kSum || operation == Reduce::kMean;
  if (call.memory != 0 && planned) return run(*owned->link, int(operation), purpose_);
  through_area(values, operation, false);
}

void Communicator::all_reduce(std::span<float> values, Reduce operation, Deadline deadline) {
  reduce(values, operation, deadline);
}
void Communicator::all_reduce(std::span<double> values, Reduce operation, Deadline deadline) {
  reduce(values, operation, deadline);
}
void Communicator::all_reduce(std::span<std::int32_t> values, Reduce operation, Deadline deadline) {
  reduce(values, operation, deadline);
}
void Communicator::all_reduce(std::span<std::int64_t> values, Reduce operation, Deadline deadline) {
  reduce(values, operation, deadline);
}
void Communicator::all_reduce(std::span<engine::Half> values, Reduce operation, Deadline deadline) {
  reduce(values, operation, deadline);
}
void Communicator::all_reduce(std::span<engine::BFloat16> values, Reduce operation,
                              Deadline deadline) {
  reduce(values, operation, deadline);
}

template <class T>
void Communicator::spread(std::span<T> values, int root, Deadline deadline) {
  agree({Kind::kBroadcast, engine::dtype_of<T>(), root, values.size(), 0}, deadline);
  if (root < 0 || root >= size())
    fail_together(fmt::format("broadcast from rank {}: there are ranks 0 to {}", root, size() - 1));
  through_area(values, Reduce::kSum, rank() != root);
}

void Communicator::broadcast(std::span<float> values, int root, Deadline deadline) {
  spread(values, root, deadline);
}
void Communicator::broadcast(std::span<double> values, int root, Deadline deadline) {
  spread(values, root, deadline);
}
void Communicator::broadcast(std::span<std::int32_t> values, int root, Deadline deadline) {
  spread(values, root, deadline);
}
void Communicator::broadcast(std::span<std::int64_t> values, int root, Deadline deadline) {
  spread(values, root, deadline);
}
void Communicator::broadcast(std::span<engine::Half> values, int root, Deadline deadline) {
  spread(values, root, deadline);
}
void Communicator::broadcast(std::span<engine::BFloat16> values, int root, Deadline deadline) {
  spread(values, root, deadline);
}

void Communicator::barrier(Deadline deadline) {
  agree({}, deadline);
}

template <class T>
std::span<T> Communicator::allocate(std::size_t count) {
  constexpr DType kType = engine::dtype_of<T>();
  agree({Kind::kAllocate, kType, 0, count, 0});
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
  owned_.push_back({made.data(), count, &made});
  return {reinterpret_cast<T*>(made.data()), count};
}

template std::span<float> Communicator::allocate<float>(std::size_t);
template std::span<double> Communicator::allocate<double>(std::size_t);
template std::span<std::int32_t> Communicator::allocate<std::int32_t>(std::size_t);
template std::span<std::int64_t> Communicator::allocate<std::int64_t>(std::size_t);
template std::span<engine::Half> Communicator::allocate<engine::Half>(std::size_t);
template std::span<engine::BFloat16> Communicator::allocate<engine::BFloat16>(std::size_t);

}  // namespace lockstep::strategies
