// SPDX-License-Identifier: MIT
#include "collectives/nccl/nccl_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "collectives/bootstrap/outcome.h"
#include "engine/base/error.h"

namespace lockstep::collectives::nccl {
namespace {

using engine::Clock;
using engine::Code;
using engine::DType;
using engine::require;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
  }
  engine::broken("an element type that NCCL was not told of");
}

cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

ncclConfig_t config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

std::vector<int> first(int ranks) {
  std::vector<int> all(std::size_t(std::max(ranks, 0)));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Returns "ranks 0 to 3", "ranks 0 2 4" or "rank 1".
std::string member_text(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const bool in_a_row = ranks.back() - ranks.front() == int(ranks.size()) - 1 &&
                        std::is_sorted(ranks.begin(), ranks.end());
  if (in_a_row) return fmt::format("ranks {} to {}", ranks.front(), ranks.back());
  return fmt::format("ranks {}", fmt::join(ranks, " "));
}

// Waits between two polls. Most waits end within microseconds; long ones must not take a processor.
void pause(int looks) {
  if (looks < 100) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Separator in a process's message: its version, followed by the id on process 0.
constexpr char kBorder = ' ';

}  // namespace

std::unique_ptr<NcclCommunicator> NcclCommunicator::open(Bootstrap& bootstrap,
                                                         const std::function<NcclFunctions()>& load,
                                                         Options options) {
  NcclFunctions functions;
  const std::vector<std::string> told = all_or_none(bootstrap, "NCCL's id", [&] {
    functions = load();
    std::string mine = version_of(functions) + kBorder;
    if (bootstrap.process() != 0) return mine;
    ncclUniqueId id{};
    if (const ncclResult_t result = functions.get_unique_id(&id); result != ncclSuccess)
      engine::fail(Code::kDevice, "NCCL makes no id: {}", words(functions, result, nullptr));
    return mine.append(id.internal, sizeof(id.internal));
  });
  const auto version = [&](std::size_t process) {
    return told[process].substr(0, told[process].find(kBorder));
  };
  for (std::size_t process = 1; process < told.size(); ++process) {
    require(version(process) == version(0),
            "process {} has NCCL {}, process 0 has {}: install the same on all hosts", process,
            version(process), version(0));
  }
  ncclUniqueId id{};
  const std::size_t begin = version(0).size() + 1;
  engine::invariant(told[0].size() == begin + sizeof(id.internal), "an id of NCCL has its size");
  std::memcpy(id.internal, told[0].data() + begin, sizeof(id.internal));
  options.throw_if_lost = [&bootstrap, also = std::move(options.throw_if_lost)] {
    bootstrap.throw_if_abandoned();
    also();
  };
  return std::make_unique<NcclCommunicator>(functions, id, bootstrap.process(),
                                            bootstrap.processes(), std::move(options));
}

NcclCommunicator::NcclCommunicator(const NcclFunctions& functions, const ncclUniqueId& id, int rank,
                                   int ranks, Options options)
    : functions_(functions), rank_(rank), members_(first(ranks)), options_(std::move(options)) {
  require(rank >= 0 && rank < ranks, "rank {} of {} ranks: ranks count from 0", rank, ranks);
  ncclConfig_t how = config();
  finish(functions_.comm_init_rank_config(&comm_, ranks, id, rank, &how));
}

NcclCommunicator::NcclCommunicator(const NcclFunctions& functions, ncclComm_t comm, int rank,
                                   std::vector<int> members, Options options)
    : functions_(functions),
      comm_(comm),
      rank_(rank),
      members_(std::move(members)),
      options_(std::move(options)) {}

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) return;
  if (closed()) {
    functions_.comm_destroy(comm_);
  } else {
    functions_.comm_abort(comm_);
  }
}

// Ends the communicator in order, with all ranks. Returns whether it ended within its deadline.
bool NcclCommunicator::closed() noexcept {
  for (const auto& [data, handle] : memory_)
    if (functions_.comm_deregister(comm_, handle) != ncclSuccess) return false;
  ncclResult_t state = functions_.comm_finalize(comm_);
  const auto end = Clock::now() + options_.closing;
  for (int looks = 0; state == ncclInProgress; ++looks) {
    if (Clock::now() > end) return false;
    pause(looks);
    if (functions_.comm_get_async_error(comm_, &state) != ncclSuccess) return false;
  }
  return state == ncclSuccess;
}

std::unique_ptr<NcclCommunicator> NcclCommunicator::split(const std::vector<int>& members) {
  begin({"split"});
  const bool takes_part = !members.empty();
  const auto place = std::find(members.begin(), members.end(), rank_);
  if (takes_part) {
    require(place != members.end(), "rank {} is not among {}, its part of a split", rank_,
            member_text(members));
  }
  for (const int member : members) {
    require(member >= 0 && member < ranks(), "rank {} of a part is none of {} ranks", member,
            ranks());
  }
  const int key = int(place - members.begin());
  ncclConfig_t how = config();
  ncclComm_t part = nullptr;  // written when this communicator is ready again
  try {
    finish(functions_.comm_split(comm_, takes_part ? members.front() : NCCL_SPLIT_NOCOLOR, key,
                                 &part, &how));
  } catch (const engine::Error&) {
    if (part != nullptr) functions_.comm_abort(part);
    throw;
  }
  if (!takes_part) return nullptr;
  engine::invariant(part != nullptr, "NCCL gives each rank its part of a split");
  std::vector<int> names;
  for (const int member : members) names.push_back(members_[std::size_t(member)]);
  auto made = std::unique_ptr<NcclCommunicator>(
      new NcclCommunicator(functions_, part, key, std::move(names), options_));
  made->poll([&] { return made->ready(); });  // may still be in progress
  return made;
}

// Runs `calls` as one group. NCCL forbids an abort inside a group, so its first error is kept until
// the end.
void NcclCommunicator::together(const std::function<void()>& calls) {
  engine::invariant(!grouped_, "groups of collectives do not nest");
  begin({"group of collectives"});
  finish(functions_.group_start());
  grouped_ = ncclSuccess;
  std::exception_ptr thrown;
  try {
    calls();
  } catch (...) {
    thrown = std::current_exception();
  }
  const ncclResult_t end = functions_.group_end(), inside = *std::exchange(grouped_, {});
  finish(inside == ncclSuccess ? end : inside);
  if (thrown) std::rethrow_exception(thrown);
}

void NcclCommunicator::all_reduce(std::byte* data, std::size_t count, DType dtype, void* stream) {
  if (!begin_collective({"all_reduce", count, dtype})) return;
  finish(functions_.all_reduce(data, data, count, nccl_type(dtype), ncclSum, comm_,
                               stream_of(stream)));
}

void NcclCommunicator::reduce_scatter(std::byte* data, std::size_t part, DType dtype,
                                      void* stream) {
  if (!begin_collective({"reduce_scatter", part, dtype})) return;
  finish(functions_.reduce_scatter(data, data + std::size_t(rank_) * part * size_of(dtype), part,
                                   nccl_type(dtype), ncclSum, comm_, stream_of(stream)));
}

void NcclCommunicator::all_gather(std::byte* data, std::size_t part, DType dtype, void* stream) {
  if (!begin_collective({"all_gather", part, dtype})) return;
  finish(functions_.all_gather(data + std::size_t(rank_) * part * size_of(dtype), data, part,
                               nccl_type(dtype), comm_, stream_of(stream)));
}

void NcclCommunicator::broadcast(std::byte* data, std::size_t count, DType dtype, int root,
                                 void* stream) {
  require(root >= 0 && root < ranks(), "a broadcast of rank {} among {} ranks: ranks count from 0",
          root, ranks());
  if (!begin_collective({"broadcast", count, dtype, root})) return;
  finish(functions_.broadcast(data, data, count, nccl_type(dtype), root, comm_, stream_of(stream)));
}

void NcclCommunicator::add_memory(std::byte* data, std::size_t bytes) {
  begin({"registration of memory"});
  require(!memory_.contains(data), "memory is registered with rank {} twice", members_[rank_]);
  void* handle = nullptr;
  finish(functions_.comm_register(comm_, data, bytes, &handle));
  memory_.emplace(data, handle);
}

void NcclCommunicator::remove_memory(const std::byte* data) {
  if (failure_) return;  // the abort removed all registrations
  begin({"end of a registration"});
  const auto found = memory_.find(data);
  require(found != memory_.end(), "memory is taken from rank {} that was not registered with it",
          members_[rank_]);
  finish(functions_.comm_deregister(comm_, found->second));
  memory_.erase(found);
}

engine::Buffer NcclCommunicator::allocate(std::size_t bytes) {
  begin({"allocation"});
  void* data = nullptr;
  const ncclResult_t result = functions_.mem_alloc(&data, bytes);
  if (result != ncclSuccess) {
    engine::fail(Code::kMemory, "rank {}: NCCL gives no {} bytes: {}", members_[rank_], bytes,
                 words(functions_, result, nullptr));
  }
  return {static_cast<std::byte*>(data), bytes, [free = functions_.mem_free, data] { free(data); }};
}

void NcclCommunicator::check() {
  if (failure_) throw engine::Error(*failure_);
  ready();
}

void NcclCommunicator::wait(const std::function<bool()>& done) {
  poll([&] {
    check();
    return done();
  });
}

void NcclCommunicator::abort(const engine::Error& why) noexcept {
  if (failure_) return;
  failure_ = why;
  memory_.clear();  // NCCL removes all registrations itself
  if (comm_ != nullptr) functions_.comm_abort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::begin(const Call& call) {
  if (failure_) throw engine::Error(*failure_);
  call_ = call;
}

// Returns false if there is nothing to do: a lone rank has its sums in place, and zero elements are
// complete. A group that has failed goes no further.
bool NcclCommunicator::begin_collective(const Call& call) {
  if (failure_) throw engine::Error(*failure_);
  if (call.count == 0 || ranks() == 1 || grouped_.value_or(ncclSuccess) != ncclSuccess)
    return false;
  call_ = call;
  return true;
}

// Waits until a call that returned `result` is complete. In a group, the end of the group does
// that.
void NcclCommunicator::finish(ncclResult_t result) {
  if (grouped_) {
    if (result != ncclSuccess && result != ncclInProgress) grouped_ = result;
    return;
  }
  if (result == ncclSuccess) return;
  if (result != ncclInProgress) fail_with(result);
  poll([&] { return ready(); });
}

// Returns whether NCCL has completed the work on its own threads.
bool NcclCommunicator::ready() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = functions_.comm_get_async_error(comm_, &state);
  if (asked != ncclSuccess) fail_with(asked);
  if (state != ncclSuccess && state != ncclInProgress) fail_with(state);
  return state == ncclSuccess;
}

// Polls until `done`. It reads the clock before the last poll, so that a process that slept for
// long blames nobody.
void NcclCommunicator::poll(const std::function<bool()>& done) {
  const auto begin = Clock::now();
  try {
    for (int looks = 0;; ++looks) {
      const bool late = Clock::now() - begin > options_.deadline;
      if (done()) return;
      options_.throw_if_lost();
      if (late) {
        fail_with(engine::Error(Code::kTimeout,
                                fmt::format("{} did not come to an end within {} ms: a rank has "
                                            "not come to it, or cannot be reached",
                                            description(), options_.deadline.count())));
      }
      pause(looks);
    }
  } catch (const engine::Error& error) {
    abort(error);
    throw;
  }
}

// Returns "rank 1: NCCL's all_reduce of 1000 float32 among ranks 0 to 3".
std::string NcclCommunicator::description() const {
  std::string what = call_.name;
  if (call_.count > 0) what += fmt::format(" of {} {}", call_.count, name(call_.dtype));
  if (call_.root >= 0) what += fmt::format(" from rank {}", members_[std::size_t(call_.root)]);
  return fmt::format("rank {}: NCCL's {} among {}", members_[rank_], what, member_text(members_));
}

void NcclCommunicator::fail_with(ncclResult_t result) {
  std::string why = fmt::format("{} failed: {}", description(), words(functions_, result, comm_));
  // NCCL does not say which rank is lost; of two ranks it is the other one.
  const bool remote = result == ncclRemoteError;
  std::vector<int> lost;
  if (remote && ranks() == 2) {
    lost.push_back(members_[std::size_t(1 - rank_)]);
    why += fmt::format("; rank {} is lost", lost[0]);
  }
  fail_with(engine::Error(remote ? Code::kPeerLost : Code::kDevice, why, std::move(lost)));
}

void NcclCommunicator::fail_with(const engine::Error& error) {
  abort(error);
  throw engine::Error(error);
}

}  // namespace lockstep::collectives::nccl
