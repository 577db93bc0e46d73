// SPDX-License-Identifier: MIT
#include "test/collectives/nccl/fake_nccl.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives::nccl {
namespace {

using engine::DType;

std::atomic<FakeNccl*> current_fake = nullptr;

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return DType::kFloat32;
    case ncclFloat64:
      return DType::kFloat64;
    case ncclInt32:
      return DType::kInt32;
    case ncclInt64:
      return DType::kInt64;
    case ncclFloat16:
      return DType::kFloat16;
    case ncclBfloat16:
      return DType::kBFloat16;
    default:
      engine::broken("an element type that lockstep has none for");
  }
}

}  // namespace

FakeNccl::FakeNccl(Meet meet) : meet_(std::move(meet)) {
  engine::invariant(current_fake == nullptr, "one fake NCCL at a time");
  current_fake = this;
}

FakeNccl::~FakeNccl() {
  current_fake = nullptr;
}

ncclResult_t FakeNccl::locked(const std::function<ncclResult_t(FakeNccl&)>& call) {
  FakeNccl& fake = *current_fake;
  const std::scoped_lock lock(fake.mutex_);
  return call(fake);
}

bool FakeNccl::idle(void* stream) {
  const std::scoped_lock lock(mutex_);
  return streams_[stream].empty();
}

void FakeNccl::fail(int rank, ncclResult_t error, const std::string& words) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [handle, comm] : comms_) {
    if (comm->whole != rank) continue;
    comm->error = error;
    comm->words = words;
  }
}

void FakeNccl::lose(int rank, const std::string& words) {
  const std::scoped_lock lock(mutex_);
  for (const auto& [handle, lost] : comms_) {
    if (lost->whole != rank) continue;
    lost->clique->broken = true;
    for (Comm* member : lost->clique->members) {
      if (member == nullptr || member == lost.get()) continue;
      member->error = ncclRemoteError;
      member->words = words;
    }
  }
}

int FakeNccl::communicators() {
  const std::scoped_lock lock(mutex_);
  return int(comms_.size());
}

int FakeNccl::made() {
  const std::scoped_lock lock(mutex_);
  return made_;
}

int FakeNccl::aborted() {
  const std::scoped_lock lock(mutex_);
  return aborted_;
}

int FakeNccl::queued() {
  const std::scoped_lock lock(mutex_);
  return queued_;
}

int FakeNccl::registrations() {
  const std::scoped_lock lock(mutex_);
  int sum = 0;
  for (const auto& [handle, comm] : comms_) sum += comm->registrations;
  return sum;
}

int FakeNccl::allocations() {
  const std::scoped_lock lock(mutex_);
  return int(memory_.size());
}

std::vector<std::string> FakeNccl::misuses() {
  const std::scoped_lock lock(mutex_);
  return misuses_;
}

// Returns the communicator of a handle. If there is none or it is not ready, notes a misuse and
// returns null.
FakeNccl::Comm* FakeNccl::use(ncclComm_t handle, const char* call, bool needs_ready) {
  const auto found = comms_.find(handle);
  if (found == comms_.end()) {
    misuse(std::string(call) + " of a communicator that is not there");
    return nullptr;
  }
  Comm& comm = *found->second;
  const bool complete = comm.clique->came == int(comm.clique->members.size());
  if (needs_ready && (!complete || comm.lag > 0 || comm.split || comm.finalized)) {
    misuse(std::string(call) + " of a communicator that is in progress");
    return nullptr;
  }
  return &comm;
}

FakeNccl::Comm* FakeNccl::add(Clique& clique, int rank, int whole) {
  auto comm = std::make_unique<Comm>(Comm{.clique = &clique, .rank = rank, .whole = whole});
  Comm* const address = comm.get();
  comm->lag = lag;
  clique.members[std::size_t(rank)] = address;
  ++clique.came;
  ++made_;
  comms_.emplace(address, std::move(comm));
  return address;
}

ncclUniqueId FakeNccl::next_id() {
  ncclUniqueId id{};
  const std::string text = fmt::format("fake {}", ++ids_);
  text.copy(id.internal, text.size());
  return id;
}

ncclResult_t FakeNccl::join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank) {
  std::unique_ptr<Clique>& clique = by_id_[id.internal];
  if (clique == nullptr) {
    clique = std::make_unique<Clique>();
    clique->members.resize(std::size_t(ranks));
  }
  if (int(clique->members.size()) != ranks || clique->members[std::size_t(rank)] != nullptr) {
    misuse("ranks of one id do not agree");
    return ncclInvalidUsage;
  }
  *comm = reinterpret_cast<ncclComm_t>(add(*clique, rank, rank));
  return ncclInProgress;
}

ncclResult_t FakeNccl::busy(Comm& comm) {
  comm.lag = lag;
  return lag > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t FakeNccl::state(Comm& comm) {
  const Clique& clique = *comm.clique;
  if (comm.error != ncclSuccess) return comm.error;
  if (never_starts || clique.came < int(clique.members.size())) return ncclInProgress;
  if (comm.split && !comm.split->resolved) return ncclInProgress;
  const auto stays = [](const Comm* member) { return member != nullptr && !member->finalized; };
  if (comm.finalized &&
      (never_finalizes || std::any_of(clique.members.begin(), clique.members.end(), stays)))
    return ncclInProgress;
  if (comm.lag > 0) {
    --comm.lag;
    return ncclInProgress;
  }
  if (comm.split) {
    *comm.split->place = reinterpret_cast<ncclComm_t>(comm.split->part);
    comm.split.reset();
  }
  return ncclSuccess;
}

ncclResult_t FakeNccl::begin_split(Comm& comm, const Split& split) {
  comm.split = split;
  comm.lag = lag;
  resolve_split(*comm.clique);
  return ncclInProgress;
}

// Makes the parts when all ranks have named theirs.
void FakeNccl::resolve_split(Clique& clique) {
  std::map<int, std::vector<Comm*>> parts;
  for (Comm* member : clique.members) {
    if (member == nullptr || !member->split || member->split->resolved) return;
    if (member->split->colour != NCCL_SPLIT_NOCOLOR) parts[member->split->colour].push_back(member);
  }
  for (auto& [colour, members] : parts) {
    std::stable_sort(members.begin(), members.end(),
                     [](const Comm* a, const Comm* b) { return a->split->key < b->split->key; });
    Clique& part = *parts_.emplace_back(std::make_unique<Clique>());
    part.members.resize(members.size());
    for (std::size_t rank = 0; rank < members.size(); ++rank)
      members[rank]->split->part = add(part, int(rank), members[rank]->whole);
  }
  for (Comm* member : clique.members) member->split->resolved = true;
}

ncclResult_t FakeNccl::queue(Work work) {
  if (answer != ncclSuccess) return answer;
  work.number = work.comm->queued++;
  ++queued_;
  if (meet_) return join_meeting(work);
  streams_[work.stream].push_back(work);
  run_what_can();
  return busy(*work.comm);
}

// Adds a rank's operands to a collective before its stream can reach the work.
ncclResult_t FakeNccl::join_meeting(const Work& work) {
  const Clique& clique = *work.comm->clique;
  Met& met = met_[{&clique, work.number}];
  if (met.came++ == 0) {
    met.first = work;
    met.operands.resize(clique.members.size());
    met.meeting = meet_(int(clique.members.size()), [&met] {
      run(met.first.kind, met.operands, met.first.count, dtype_of(met.first.type), met.first.root);
    });
  }
  if (work.kind != met.first.kind || work.count != met.first.count || work.type != met.first.type ||
      work.root != met.first.root)
    misuse("ranks do not ask for the same collective");
  met.operands[std::size_t(work.comm->rank)] = work.operand;
  if (clique.broken) met.meeting->give_up();
  met.meeting->join(work.stream);
  return busy(*work.comm);
}

void FakeNccl::run_what_can() {
  const auto one_runs = [&] {
    for (const auto& [stream, works] : streams_)
      if (!works.empty() && runs(works.front())) return true;
    return false;
  };
  while (one_runs()) {
  }
}

// Runs the work if each rank's share is the first in its stream. Returns whether it ran.
bool FakeNccl::runs(const Work& work) {
  const Clique& clique = *work.comm->clique;
  if (clique.broken) return false;
  std::vector<std::deque<Work>*> places(clique.members.size());
  std::vector<Operand> operands(clique.members.size());
  for (auto& [stream, works] : streams_) {
    if (works.empty()) continue;
    const Work& other = works.front();
    if (other.comm->clique != &clique || other.number != work.number) continue;
    if (other.kind != work.kind || other.count != work.count || other.type != work.type ||
        other.root != work.root)
      misuse("ranks do not ask for the same collective");
    places[std::size_t(other.comm->rank)] = &works;
    operands[std::size_t(other.comm->rank)] = other.operand;
  }
  if (std::count(places.begin(), places.end(), nullptr) > 0) return false;
  run(work.kind, operands, work.count, dtype_of(work.type), work.root);
  for (std::deque<Work>* works : places) works->pop_front();
  return true;
}

ncclResult_t FakeNccl::leave(Comm& comm, bool abort) {
  if (!abort && (!comm.finalized || state(comm) != ncclSuccess))
    misuse("a communicator is destroyed that is not finalized");
  if (!abort && comm.registrations > 0) misuse("memory is left with a communicator");
  for (auto& [stream, works] : streams_) {
    const auto ours = [&](const Work& work) { return work.comm == &comm; };
    if (!abort && std::any_of(works.begin(), works.end(), ours))
      misuse("a communicator is destroyed before its work is done");
    works.erase(std::remove_if(works.begin(), works.end(), ours), works.end());
  }
  if (abort) {
    ++aborted_;
    comm.clique->broken = true;
    for (auto& [place, met] : met_)
      if (place.first == comm.clique) met.meeting->give_up();
  }
  if (comm.split && comm.split->part != nullptr)
    *comm.split->place = reinterpret_cast<ncclComm_t>(comm.split->part);
  comm.clique->members[std::size_t(comm.rank)] = nullptr;
  comms_.erase(&comm);
  return ncclSuccess;
}

ncclResult_t FakeNccl::allocate(void** data, std::size_t bytes) {
  if (bytes > std::size_t(1) << 30) return ncclUnhandledCudaError;
  auto memory = std::make_unique<std::byte[]>(bytes);
  *data = memory.get();
  memory_.emplace(*data, std::move(memory));
  return ncclSuccess;
}

ncclResult_t FakeNccl::release(void* data) {
  if (memory_.erase(data) == 0) misuse("memory is freed that is not there");
  return ncclSuccess;
}

}  // namespace lockstep::collectives::nccl
