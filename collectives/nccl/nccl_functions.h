// SPDX-License-Identifier: MIT
// The functions of NCCL that lockstep calls, as a table, so that the program starts where there is
// no NCCL, and tests can put another one in. A field is named as NCCL's function without its
// `nccl`. A table is plain data: copy it freely; any thread may call what it holds.
#pragma once
#include <nccl.h>

#include <string>

namespace lockstep::collectives::nccl {

struct NcclFunctions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;

  // Communicators, from their beginning to their end.
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;

  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;

  decltype(&ncclMemAlloc) mem_alloc = nullptr;
  decltype(&ncclMemFree) mem_free = nullptr;
  decltype(&ncclCommRegister) comm_register = nullptr;
  decltype(&ncclCommDeregister) comm_deregister = nullptr;
};

// Opens the library, which stays to the end of the program: it has threads of its own. Throws
// Error(kUnavailable), in one line, where there is none or it is too old.
NcclFunctions load_nccl(const std::string& file = "libnccl.so.2");

// "2.28.9". Throws Error(kUnavailable), in one line, where it is too old.
std::string version_of(const NcclFunctions& functions);

// "unhandled system error (socketStartConnect: Connection refused)". `comm` may be null.
std::string words(const NcclFunctions& functions, ncclResult_t result, ncclComm_t comm);

}  // namespace lockstep::collectives::nccl
