// SPDX-License-Identifier: MIT
// A profiler's library, which NVTX opens (NVTX_INJECTION64_PATH). Writes the events of domain
// "lockstep", one per line, to the file RANGES.<process> in the folder RANGE_LISTENER.
//
//   push THREAD TEXT     pop THREAD     start RANGE TEXT     end RANGE     over
#include <nvtx3/nvToolsExt.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::FILE* file = nullptr;
std::deque<std::string> texts;  // registered; addresses are the handles
std::atomic<nvtxRangeId_t> ranges{0};
char domain = 0;  // its address is the handle

const char* text_of(const nvtxEventAttributes_t& event) {
  if (event.messageType == NVTX_MESSAGE_TYPE_ASCII) return event.message.ascii;
  if (event.messageType != NVTX_MESSAGE_TYPE_REGISTERED) return "(without a name)";
  return reinterpret_cast<const std::string*>(event.message.registered)->c_str();
}

void write(const char* what, std::uint64_t number, const char* text) {
  std::scoped_lock lock(mutex);
  if (file == nullptr) return;
  std::fprintf(file, "%s %llu %s\n", what, static_cast<unsigned long long>(number), text);
  std::fflush(file);
}

std::uint64_t thread() {
  return std::uint64_t(syscall(SYS_gettid));
}

nvtxDomainHandle_t create(const char* name) {
  if (std::string(name) != "lockstep") return nullptr;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}

void destroy(nvtxDomainHandle_t) {
  write("over", 0, "");
}

nvtxStringHandle_t registered(nvtxDomainHandle_t, const char* text) {
  std::scoped_lock lock(mutex);
  return reinterpret_cast<nvtxStringHandle_t>(&texts.emplace_back(text));
}

int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  write("push", thread(), text_of(*event));
  return 0;
}

int pop(nvtxDomainHandle_t) {
  write("pop", thread(), "");
  return 0;
}

nvtxRangeId_t start(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  const nvtxRangeId_t range = ++ranges;
  write("start", range, text_of(*event));
  return range;
}

void end(nvtxDomainHandle_t, nvtxRangeId_t range) {
  write("end", range, "");
}

template <class Function>
NvtxFunctionPointer any(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

// Initializes the library; NVTX calls this when it has opened it. Returns 1 if it listens.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t table) {
  const char* const folder = std::getenv("RANGE_LISTENER");
  if (folder == nullptr) return 0;
  file = std::fopen((std::string(folder) + "/RANGES." + std::to_string(getpid())).c_str(), "w");
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int size = 0;
  if (file == nullptr || callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &size) == 0 ||
      size <= NVTX_CBID_CORE2_DomainDestroy)
    return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = any(create);
  *functions[NVTX_CBID_CORE2_DomainDestroy] = any(destroy);
  *functions[NVTX_CBID_CORE2_DomainRegisterStringA] = any(registered);
  *functions[NVTX_CBID_CORE2_DomainRangePushEx] = any(push);
  *functions[NVTX_CBID_CORE2_DomainRangePop] = any(pop);
  *functions[NVTX_CBID_CORE2_DomainRangeStartEx] = any(start);
  *functions[NVTX_CBID_CORE2_DomainRangeEnd] = any(end);
  return 1;
}
