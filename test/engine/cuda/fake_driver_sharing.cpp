// SPDX-License-Identifier: MIT
// Memory and events that processes share on fake GPUs. A handle is an address in the exporting
// process. The fake refuses what a driver may refuse: own objects, the middle of a block, small
// blocks, and events not created for sharing.
#include <cstring>
#include <utility>

#include "test/engine/cuda/fake_driver.h"

namespace lockstep::engine::cuda {
namespace {

// For smaller blocks, a driver shares whole pages, including other blocks there.
constexpr std::size_t kPages = std::size_t(2) << 20;

template <class Handle>
Handle handle_of(const void* what) {
  Handle handle{};
  std::memcpy(handle.reserved, &what, sizeof what);
  return handle;
}

template <class Handle>
void* named_by(const Handle& handle) {
  void* what = nullptr;
  std::memcpy(&what, handle.reserved, sizeof what);
  return what;
}

std::byte* shared_bytes_at(CUdeviceptr address) {
  return reinterpret_cast<std::byte*>(std::uintptr_t(address));
}

CUdeviceptr address_of(const void* data) {
  return CUdeviceptr(reinterpret_cast<std::uintptr_t>(data));
}

void fill_memory_handles(Driver& driver) {
  driver.ipc_get_mem_handle = [](CUipcMemHandle* handle, CUdeviceptr address) {
    return in_context([&](FakeState& state, const FakeContext& context) {
      if (!state.options.sharing) return CUDA_ERROR_NOT_SUPPORTED;
      std::byte* const data = shared_bytes_at(address);
      const bool begins = state.memory.kind_of(data - 1, 1) != FakeMemory::Kind::kGpu;
      const bool whole = state.memory.kind_of(data, kPages) == FakeMemory::Kind::kGpu;
      if (!begins || !whole || state.memory.process_of(data) != context.process)
        return CUDA_ERROR_INVALID_VALUE;
      *handle = handle_of<CUipcMemHandle>(data);
      return CUDA_SUCCESS;
    });
  };
  driver.ipc_open_mem_handle = [](CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
      auto* const data = static_cast<std::byte*>(named_by(handle));
      if (state.memory.kind_of(data, 1) != FakeMemory::Kind::kGpu) return CUDA_ERROR_INVALID_HANDLE;
      if (state.memory.process_of(data) == context.process) return CUDA_ERROR_INVALID_CONTEXT;
      if (!reaches(state, context.gpu, state.memory.place_of(data)))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
      *address = address_of(state.memory.open(data, context.process, context.gpu));
      return *address == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    });
  };
  // Closing waits for queued work.
  driver.ipc_close_mem_handle = [](CUdeviceptr address) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      const CUresult waited = result_of(state.queue.finish_all(context.gpu, context.process));
      if (waited != CUDA_SUCCESS) return waited;
      return state.memory.close(shared_bytes_at(address)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
  };
}

void fill_event_handles(Driver& driver) {
  driver.ipc_get_event_handle = [](CUipcEventHandle* handle, CUevent named) {
    return in_context([&](FakeState& state, const FakeContext& context) {
      if (!state.options.sharing) return CUDA_ERROR_NOT_SUPPORTED;
      const std::shared_ptr<FakeEvent> event = event_of(state, named);
      if (!event || !event->shared || event->process != context.process)
        return CUDA_ERROR_INVALID_HANDLE;
      *handle = handle_of<CUipcEventHandle>(event.get());
      return CUDA_SUCCESS;
    });
  };
  driver.ipc_open_event_handle = [](CUevent* opened, CUipcEventHandle handle) {
    return in_context([&](FakeState& state, const FakeContext& context) {
      const std::shared_ptr<FakeEvent> event =
          event_of(state, static_cast<CUevent>(named_by(handle)));
      if (!event) return CUDA_ERROR_INVALID_HANDLE;
      if (event->process == context.process) return CUDA_ERROR_INVALID_CONTEXT;
      state.events.push_back(std::make_shared<FakeEvent>());
      FakeEvent& mine = *state.events.back();
      mine.gpu = context.gpu, mine.process = context.process;
      mine.of = event;
      *opened = reinterpret_cast<CUevent>(&mine);
      return CUDA_SUCCESS;
    });
  };
}

void fill_pinning(Driver& driver) {
  driver.mem_host_register = [](void* data, std::size_t bytes, unsigned flags) {
    return uncaptured([&](FakeState& state, const FakeContext&) {
      constexpr std::size_t kPage = 4096;
      const bool whole = reinterpret_cast<std::uintptr_t>(data) % kPage == 0 && bytes % kPage == 0;
      constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
      if (!whole || bytes == 0 || flags != kFlags) return CUDA_ERROR_INVALID_VALUE;
      return state.memory.pin(static_cast<std::byte*>(data), bytes)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    });
  };
  driver.mem_host_unregister = [](void* data) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      const CUresult waited = result_of(state.queue.finish_all(context.gpu, context.process));
      if (waited != CUDA_SUCCESS) return waited;
      return state.memory.unpin(static_cast<std::byte*>(data))
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    });
  };
  driver.mem_host_get_device_pointer = [](CUdeviceptr* address, void* data, unsigned) {
    return in_context([&](FakeState& state, const FakeContext&) {
      *address = address_of(data);
      const bool pinned = state.memory.kind_of(data, 1) == FakeMemory::Kind::kPinned;
      return pinned ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
  };
}

}  // namespace

void fill_sharing(Driver& driver) {
  fill_memory_handles(driver);
  fill_event_handles(driver);
  fill_pinning(driver);
}

}  // namespace lockstep::engine::cuda
