// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/fake_process.h"

namespace lockstep::engine::cuda {
namespace {

std::atomic<FakeState*> installed{nullptr};

// Names an error that the fake returns; other errors have only a number.
struct ErrorWords {
  CUresult result;
  const char* name;
  const char* text;
};
constexpr ErrorWords kErrors[] = {
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
};

const ErrorWords* words_of(CUresult result) {
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                   [&](const ErrorWords& e) { return e.result == result; });
  return found == std::end(kErrors) ? nullptr : found;
}

FakeContext* context_of(FakeState& state, CUcontext handle) {
  auto* const context = reinterpret_cast<FakeContext*>(handle);
  const bool known = std::any_of(state.contexts.begin(), state.contexts.end(),
                                 [&](const auto& c) { return c.get() == context; });
  return known && context->holders > 0 ? context : nullptr;
}

// The number of a device combines a GPU with the process that uses it.
constexpr int kMostGpus = 1000;
int gpu_of(CUdevice device) {
  return device % kMostGpus;
}
int process_of(CUdevice device) {
  return device / kMostGpus;
}

bool is_gpu(const FakeState& state, CUdevice device) {
  return device >= 0 && gpu_of(device) < state.options.gpus;
}

void fill_devices(Driver& driver) {
  driver.init = [](unsigned) {
    FakeState* const state = installed.load();
    if (state == nullptr || state->options.gpus == 0) return CUDA_ERROR_NO_DEVICE;
    const std::lock_guard lock(state->mutex);
    state->started = true;
    return CUDA_SUCCESS;
  };
  driver.driver_get_version = [](int* version) {
    const FakeState* const state = installed.load();
    if (state == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    *version = state->options.driver_version;
    return CUDA_SUCCESS;
  };
  driver.get_error_name = [](CUresult result, const char** name) {
    const ErrorWords* const found = words_of(result);
    *name = found == nullptr ? nullptr : found->name;
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  driver.get_error_string = [](CUresult result, const char** text) {
    const ErrorWords* const found = words_of(result);
    *text = found == nullptr ? nullptr : found->text;
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  driver.device_get_count = [](int* count) {
    return guarded([&](FakeState& state) {
      *count = state.options.gpus;
      return CUDA_SUCCESS;
    });
  };
  driver.device_get = [](CUdevice* device, int index) {
    return guarded([&](FakeState& state) {
      *device = FakeProcess::current() * kMostGpus + index;
      return index >= 0 && is_gpu(state, index) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    });
  };
  driver.device_get_name = [](char* text, int size, CUdevice) {
    return guarded([&](FakeState&) {
      std::strncpy(text, "Fake GPU", std::size_t(size));
      return CUDA_SUCCESS;
    });
  };
  driver.device_get_pci_bus_id = [](char* text, int size, CUdevice device) {
    return guarded([&](FakeState& state) {
      const auto& visible = state.options.visible;
      const int gpu = gpu_of(device);
      const int place = visible.empty() ? gpu : visible[std::size_t(gpu)];
      std::strncpy(text, fmt::format("0000:{:02x}:00.0", place).c_str(), std::size_t(size));
      return CUDA_SUCCESS;
    });
  };
  driver.device_get_attribute = [](int* value, CUdevice_attribute which, CUdevice) {
    return guarded([&](FakeState& state) {
      switch (which) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
          *value = state.options.capability / 10;
          return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
          *value = state.options.capability % 10;
          return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
          *value = 4;
          return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
          *value = 2'000'000;
          return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
          *value = 4096;
          return CUDA_SUCCESS;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
          *value = 1 << 20;
          return CUDA_SUCCESS;
        default:
          return CUDA_ERROR_INVALID_VALUE;
      }
    });
  };
  driver.device_total_mem = [](std::size_t* bytes, CUdevice) {
    return guarded([&](FakeState& state) {
      *bytes = state.options.memory;
      return CUDA_SUCCESS;
    });
  };
}

bool may_reach(const FakeState& state, CUdevice from, CUdevice to) {
  return from != to && is_gpu(state, from) && is_gpu(state, to) &&
         process_of(from) == process_of(to) && reaches(state, gpu_of(from), gpu_of(to));
}

void fill_peers(Driver& driver) {
  driver.device_can_access_peer = [](int* can, CUdevice from, CUdevice to) {
    return guarded([&](FakeState& state) {
      *can = may_reach(state, from, to) ? 1 : 0;
      return CUDA_SUCCESS;
    });
  };
  // GPUs 0 and 1 are a fast pair, as are 2 and 3, and so on.
  driver.device_get_p2p_attribute = [](int* value, CUdevice_P2PAttribute which, CUdevice from,
                                       CUdevice to) {
    return guarded([&](FakeState& state) {
      if (from == to || !is_gpu(state, from) || !is_gpu(state, to))
        return CUDA_ERROR_INVALID_DEVICE;
      switch (which) {
        case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
          *value = may_reach(state, from, to) ? 1 : 0;
          return CUDA_SUCCESS;
        case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
          *value = gpu_of(from) / 2 == gpu_of(to) / 2 ? 0 : 1;
          return CUDA_SUCCESS;
        default:
          return CUDA_ERROR_INVALID_VALUE;
      }
    });
  };
  driver.ctx_enable_peer_access = [](CUcontext handle, unsigned) {
    return in_context([&](FakeState& state, FakeContext& context) {
      const FakeContext* const peer = context_of(state, handle);
      if (peer == nullptr || peer == &context) return CUDA_ERROR_INVALID_CONTEXT;
      if (peer->process != context.process) return CUDA_ERROR_INVALID_CONTEXT;
      if (!may_reach(state, context.gpu, peer->gpu)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
      const bool added = context.peers.insert(peer->gpu).second;
      return added ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    });
  };
}

void fill_contexts(Driver& driver) {
  driver.device_primary_ctx_retain = [](CUcontext* context, CUdevice device) {
    return guarded([&](FakeState& state) {
      if (!is_gpu(state, device)) return CUDA_ERROR_INVALID_DEVICE;
      FakeContext& found = state.context(process_of(device), gpu_of(device));
      ++found.holders;
      *context = reinterpret_cast<CUcontext>(&found);
      return CUDA_SUCCESS;
    });
  };
  driver.device_primary_ctx_release = [](CUdevice device) {
    FakeState* const state = installed.load();
    if (state == nullptr) return CUDA_ERROR_DEINITIALIZED;
    const std::lock_guard lock(state->mutex);
    FakeContext& context = state->context(process_of(device), gpu_of(device));
    if (context.holders == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--context.holders == 0) {
      context.peers.clear();
      std::erase_if(state->current, [&](const auto& entry) { return entry.second == &context; });
    }
    return CUDA_SUCCESS;
  };
  driver.ctx_set_current = [](CUcontext handle) {
    return guarded([&](FakeState& state) {
      FakeContext* const context = context_of(state, handle);
      if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
      state.current[std::this_thread::get_id()] = context;
      return CUDA_SUCCESS;
    });
  };
  driver.ctx_get_current = [](CUcontext* handle) {
    return guarded([&](FakeState& state) {
      const auto found = state.current.find(std::this_thread::get_id());
      *handle = found == state.current.end() ? nullptr : reinterpret_cast<CUcontext>(found->second);
      return CUDA_SUCCESS;
    });
  };
}

FakeModule* module_of(FakeState& state, CUmodule handle) {
  auto* const module = reinterpret_cast<FakeModule*>(handle);
  const bool known = std::any_of(state.modules.begin(), state.modules.end(),
                                 [&](const auto& m) { return m.get() == module; });
  return known ? module : nullptr;
}

CUresult load(FakeState& state, int gpu, CUmodule* handle, std::string_view image) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    if (image != fmt::format("emulated {}", name(dtype))) continue;
    auto module = std::make_unique<FakeModule>();
    for (const EmulatedKernel& kernel : state.options.kernels(dtype)) {
      module->functions.push_back({&kernel, gpu});
    }
    *handle = reinterpret_cast<CUmodule>(module.get());
    state.modules.push_back(std::move(module));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_IMAGE;
}

void fill_modules(Driver& driver) {
  driver.module_load_data = [](CUmodule* module, const void* image) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      if (state.options.load != CUDA_SUCCESS) return state.options.load;
      return load(state, context.gpu, module, static_cast<const char*>(image));
    });
  };
  driver.module_unload = [](CUmodule handle) {
    return in_context([&](FakeState& state, FakeContext&) {
      const auto count = std::erase_if(
          state.modules, [&](const auto& m) { return m.get() == module_of(state, handle); });
      return count == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    });
  };
  driver.module_get_function_count = [](unsigned* count, CUmodule handle) {
    return in_context([&](FakeState& state, FakeContext&) {
      const FakeModule* const module = module_of(state, handle);
      if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      *count = unsigned(module->functions.size());
      return CUDA_SUCCESS;
    });
  };
  driver.module_enumerate_functions = [](CUfunction* functions, unsigned count, CUmodule handle) {
    return in_context([&](FakeState& state, FakeContext&) {
      FakeModule* const module = module_of(state, handle);
      if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      for (unsigned i = 0; i < std::min(count, unsigned(module->functions.size())); ++i) {
        functions[i] = reinterpret_cast<CUfunction>(&module->functions[i]);
      }
      return CUDA_SUCCESS;
    });
  };
  driver.module_get_function = [](CUfunction* function, CUmodule handle, const char* name) {
    return in_context([&](FakeState& state, FakeContext&) {
      FakeModule* const module = module_of(state, handle);
      if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      for (FakeModule::Function& each : module->functions) {
        if (each.kernel->name != name) continue;
        *function = reinterpret_cast<CUfunction>(&each);
        return CUDA_SUCCESS;
      }
      return CUDA_ERROR_NOT_FOUND;
    });
  };
  driver.func_get_name = [](const char** name, CUfunction function) {
    *name = reinterpret_cast<const FakeModule::Function*>(function)->kernel->name.c_str();
    return CUDA_SUCCESS;
  };
  driver.func_set_attribute = [](CUfunction function, CUfunction_attribute attribute, int value) {
    return in_context([&](FakeState& state, FakeContext&) {
      // GPUs of compute capability 9.0 allow more than others from 8.0 on.
      const int most = state.options.capability == 90 ? 227 << 10 : 99 << 10;
      if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > most)
        return CUDA_ERROR_INVALID_VALUE;
      reinterpret_cast<FakeModule::Function*>(function)->most_shared = unsigned(value);
      return CUDA_SUCCESS;
    });
  };
  driver.func_load = [](CUfunction) {
    return uncaptured([](FakeState&, FakeContext&) { return CUDA_SUCCESS; });
  };
}

}  // namespace

void install(FakeState* state) {
  FakeState* const before = installed.exchange(state);
  invariant(state == nullptr || before == nullptr, "one fake GPU at a time");
}

Driver fake_driver() {
  Driver driver;
  fill_devices(driver);
  fill_contexts(driver);
  fill_peers(driver);
  fill_modules(driver);
  fill_memory(driver);
  fill_sharing(driver);
  fill_streams(driver);
  fill_graphs(driver);
  return driver;
}

CUresult guarded(const std::function<CUresult(FakeState&)>& call) {
  FakeState* const state = installed.load();
  if (state == nullptr) return CUDA_ERROR_DEINITIALIZED;
  const std::lock_guard lock(state->mutex);
  if (!state->started) return CUDA_ERROR_NOT_INITIALIZED;
  if (state->error != CUDA_SUCCESS) return state->error;
  const CUresult result = call(*state);
  return state->error != CUDA_SUCCESS ? state->error : result;
}

bool reaches(const FakeState& state, int from, int to) {
  return from == to || std::ranges::count(state.options.apart, std::pair(from, to)) == 0;
}

CUresult in_context(const std::function<CUresult(FakeState&, FakeContext&)>& call) {
  return guarded([&](FakeState& state) {
    const auto found = state.current.find(std::this_thread::get_id());
    if (found == state.current.end()) return CUDA_ERROR_INVALID_CONTEXT;
    return call(state, *found->second);
  });
}

CUresult uncaptured(const std::function<CUresult(FakeState&, FakeContext&)>& call) {
  return in_context([&](FakeState& state, FakeContext& context) {
    if (state.queue.break_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return call(state, context);
  });
}

CUresult with_stream(CUstream handle,
                     const std::function<CUresult(FakeState&, FakeStream*)>& call) {
  return guarded([&](FakeState& state) {
    auto* const stream = reinterpret_cast<FakeStream*>(handle);
    return state.queue.knows(stream) ? call(state, stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult result_of(FakeAnswer answer) {
  switch (answer) {
    case FakeAnswer::kDone:
      return CUDA_SUCCESS;
    case FakeAnswer::kNotReady:
      return CUDA_ERROR_NOT_READY;
    case FakeAnswer::kStuck:  // a real one would wait forever
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case FakeAnswer::kCaptured:
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    case FakeAnswer::kIsolation:
      return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    case FakeAnswer::kMerge:
      return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    case FakeAnswer::kUnjoined:
      return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    case FakeAnswer::kBroken:
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace lockstep::engine::cuda
