// SPDX-License-Identifier: MIT
// The functions of the fake NCCL.
#include <array>
#include <utility>

#include "test/collectives/nccl/fake_nccl.h"

namespace lockstep::collectives::nccl {
namespace {

// Holds the calls of this thread since its group began.
struct Group {
  bool open = false;
  std::vector<FakeNccl::Work> works;
};
thread_local Group group;

ncclResult_t collective(FakeNccl::Work work, ncclComm_t handle, ncclRedOp_t op = ncclSum) {
  return FakeNccl::locked([&](FakeNccl& fake) {
    if (op != ncclSum) fake.misuse("a reduction that is no sum");
    work.comm = fake.use(handle, "a collective", true);
    if (work.comm == nullptr) return ncclInvalidArgument;
    if (!group.open) return fake.queue(work);
    if (fake.answer != ncclSuccess) return fake.answer;
    group.works.push_back(work);
    return ncclSuccess;
  });
}

ncclResult_t get_async_error(ncclComm_t handle, ncclResult_t* state) {
  return FakeNccl::locked([&](FakeNccl& fake) {
    if (group.open) fake.misuse("a question within a group");
    FakeNccl::Comm* const comm = fake.use(handle, "a question", false);
    if (comm == nullptr) return ncclInvalidArgument;
    *state = fake.state(*comm);
    return ncclSuccess;
  });
}

ncclResult_t split(ncclComm_t handle, int colour, int key, ncclComm_t* part, ncclConfig_t* config) {
  return FakeNccl::locked([&](FakeNccl& fake) {
    if (config->blocking != 0) fake.misuse("a split that blocks");
    FakeNccl::Comm* const comm = fake.use(handle, "a split", true);
    if (comm == nullptr) return ncclInvalidArgument;
    return fake.begin_split(*comm, {.colour = colour, .key = key, .place = part});
  });
}

ncclResult_t finalize(ncclComm_t handle) {
  return FakeNccl::locked([&](FakeNccl& fake) {
    FakeNccl::Comm* const comm = fake.use(handle, "an end", true);
    if (comm == nullptr) return ncclInvalidArgument;
    if (comm->error != ncclSuccess) return comm->error;
    comm->finalized = true;
    return ncclInProgress;
  });
}

ncclResult_t end(ncclComm_t handle, bool abort) {
  return FakeNccl::locked([&](FakeNccl& fake) {
    if (group.open) fake.misuse("a communicator ends within a group");
    FakeNccl::Comm* const comm = fake.use(handle, "an end", false);
    return comm == nullptr ? ncclInvalidArgument : fake.leave(*comm, abort);
  });
}

ncclResult_t add_registrations(ncclComm_t handle, int by) {
  return FakeNccl::locked([&](FakeNccl& fake) {
    FakeNccl::Comm* const comm = fake.use(handle, "a registration", true);
    if (comm == nullptr) return ncclInvalidArgument;
    comm->registrations += by;
    return ncclSuccess;
  });
}

ncclResult_t end_group() {
  return FakeNccl::locked([](FakeNccl& fake) {
    ncclResult_t result = ncclSuccess;
    for (const FakeNccl::Work& work : group.works) result = fake.queue(work);
    group = {};
    return result;
  });
}

const char* error_string(ncclResult_t result) {
  constexpr std::array kWords{"no error",
                              "unhandled cuda error",
                              "unhandled system error",
                              "internal error",
                              "invalid argument",
                              "invalid usage",
                              "remote process exited or there was a network error",
                              "NCCL operation in progress"};
  return kWords.at(std::size_t(result));
}

const char* last_error(ncclComm_t handle) {
  const char* words = "";
  if (handle == nullptr) return words;
  FakeNccl::locked([&](FakeNccl& fake) {
    if (const FakeNccl::Comm* comm = fake.use(handle, "words", false)) words = comm->words.c_str();
    return ncclSuccess;
  });
  return words;
}

}  // namespace

NcclFunctions FakeNccl::functions() const {
  NcclFunctions f;
  f.get_version = [](int* number) {
    return locked([&](FakeNccl& fake) {
      *number = fake.version;
      return ncclSuccess;
    });
  };
  f.get_error_string = error_string;
  f.get_last_error = last_error;
  f.get_unique_id = [](ncclUniqueId* id) {
    return locked([&](FakeNccl& fake) {
      *id = fake.next_id();
      return ncclSuccess;
    });
  };
  f.comm_init_rank_config = [](ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                               ncclConfig_t* config) {
    return locked([&](FakeNccl& fake) {
      if (config->blocking != 0) fake.misuse("a start that blocks");
      return fake.join(comm, ranks, id, rank);
    });
  };
  f.comm_split = split;
  f.comm_get_async_error = get_async_error;
  f.comm_finalize = finalize;
  f.comm_destroy = [](ncclComm_t comm) { return end(comm, false); };
  f.comm_abort = [](ncclComm_t comm) { return end(comm, true); };

  f.all_reduce = [](const void* from, void* to, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return collective({{}, stream, 0, Kind::kAllReduce, {from, to}, count, type, 0}, comm, op);
  };
  f.reduce_scatter = [](const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return collective({{}, stream, 0, Kind::kReduceScatter, {from, to}, count, type, 0}, comm, op);
  };
  f.all_gather = [](const void* from, void* to, std::size_t count, ncclDataType_t type,
                    ncclComm_t comm, cudaStream_t stream) {
    return collective({{}, stream, 0, Kind::kAllGather, {from, to}, count, type, 0}, comm);
  };
  f.broadcast = [](const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream) {
    return collective({{}, stream, 0, Kind::kBroadcast, {from, to}, count, type, root}, comm);
  };
  f.group_start = [] {
    group.open = true;
    return ncclSuccess;
  };
  f.group_end = end_group;

  f.mem_alloc = [](void** data, std::size_t bytes) {
    return locked([&](FakeNccl& fake) { return fake.allocate(data, bytes); });
  };
  f.mem_free = [](void* data) {
    return locked([&](FakeNccl& fake) { return fake.release(data); });
  };
  f.comm_register = [](ncclComm_t comm, void* data, std::size_t, void** handle) {
    *handle = data;
    return add_registrations(comm, 1);
  };
  f.comm_deregister = [](ncclComm_t comm, void*) { return add_registrations(comm, -1); };
  return f;
}

}  // namespace lockstep::collectives::nccl
