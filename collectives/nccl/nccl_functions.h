// SPDX-License-Identifier: MIT
// Table of the NCCL functions that lockstep calls. It lets the program start without NCCL, and
// tests replace NCCL. A field has the name of NCCL's function without its `nccl`. A table is plain
// data: it may be copied, and any thread may call its functions.
#pragma once
#include <nccl.h>

#include <string>

namespace lockstep::collectives::nccl {

struct NcclFunctions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;

  // These create, watch and end communicators.
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

// Loads the library, which stays until the program ends, since it has threads of its own. Throws
// Error(kUnavailable), in one line, if there is none or it is too old.
NcclFunctions load_nccl(const std::string& file = "libnccl.so.2");

// Returns the version: "2.28.9". Throws Error(kUnavailable), in one line, if it is too old.
std::string version_of(const NcclFunctions& functions);

// Returns the text of an error: "unhandled system error (socketStartConnect: Connection refused)".
// `comm` may be null.
std::string words(const NcclFunctions& functions, ncclResult_t result, ncclComm_t comm);

}  // namespace lockstep::collectives::nccl
