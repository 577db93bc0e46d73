// SPDX-License-Identifier: MIT
#include "collectives/nccl/nccl_functions.h"

#include <dlfcn.h>

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::collectives::nccl {
namespace {

using engine::Code;
using engine::fail;

// First version with all functions of the table.
constexpr int kOldest = NCCL_VERSION(2, 19, 1);
constexpr const char* kHelp = "install NCCL 2.19.1 or newer, or add its folder to LD_LIBRARY_PATH";

std::string in_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string linker_words() {
  const char* text = ::dlerror();
  return in_one_line(text == nullptr ? "no reason given" : text);
}

// Opens the library from the system's search path, else from CUDA's folder. An error gives the
// reason of the search.
void* open_library(const std::string& file) {
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (void* const library = ::dlopen(file.c_str(), kFlags)) return library;
  const std::string reason = linker_words();
  if (void* const library = ::dlopen(("/usr/local/cuda/lib64/" + file).c_str(), kFlags))
    return library;
  fail(Code::kUnavailable, "{} could not be opened ({}): {}", file, reason, kHelp);
}

}  // namespace

NcclFunctions load_nccl(const std::string& file) {
  void* const library = open_library(file);
  const auto take = [&]<class Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    if (function == nullptr)
      fail(Code::kUnavailable, "{} has no {}, so it is too old: {}", file, name, kHelp);
  };
  NcclFunctions functions;
  take(functions.get_version, "ncclGetVersion");
  version_of(functions);  // first, since missing functions say less
  take(functions.get_error_string, "ncclGetErrorString");
  take(functions.get_last_error, "ncclGetLastError");
  take(functions.get_unique_id, "ncclGetUniqueId");
  take(functions.comm_init_rank_config, "ncclCommInitRankConfig");
  take(functions.comm_split, "ncclCommSplit");
  take(functions.comm_get_async_error, "ncclCommGetAsyncError");
  take(functions.comm_finalize, "ncclCommFinalize");
  take(functions.comm_destroy, "ncclCommDestroy");
  take(functions.comm_abort, "ncclCommAbort");
  take(functions.all_reduce, "ncclAllReduce");
  take(functions.reduce_scatter, "ncclReduceScatter");
  take(functions.all_gather, "ncclAllGather");
  take(functions.broadcast, "ncclBroadcast");
  take(functions.group_start, "ncclGroupStart");
  take(functions.group_end, "ncclGroupEnd");
  take(functions.mem_alloc, "ncclMemAlloc");
  take(functions.mem_free, "ncclMemFree");
  take(functions.comm_register, "ncclCommRegister");
  take(functions.comm_deregister, "ncclCommDeregister");
  return functions;
}

std::string version_of(const NcclFunctions& functions) {
  int version = 0;
  if (functions.get_version(&version) != ncclSuccess)
    fail(Code::kUnavailable, "NCCL does not tell its version: {}", kHelp);
  // Versions up to 2.8 have four digits: 2804.
  const int unit = version < 10000 ? 1000 : 10000;
  std::string text = fmt::format("{}.{}.{}", version / unit, version % unit / 100, version % 100);
  if (version < kOldest) fail(Code::kUnavailable, "NCCL {} is too old: {}", text, kHelp);
  return text;
}

std::string words(const NcclFunctions& functions, ncclResult_t result, ncclComm_t comm) {
  const char* const last = functions.get_last_error(comm);
  std::string text = functions.get_error_string(result);
  if (last != nullptr && *last != '\0') text += fmt::format(" ({})", last);
  return in_one_line(std::move(text));
}

}  // namespace lockstep::collectives::nccl
