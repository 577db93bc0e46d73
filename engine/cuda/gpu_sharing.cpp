// SPDX-License-Identifier: MIT
// Sharing of a GPU with other processes: see engine/device/process_sharing.h. A handle names a
// whole allocation of the driver. Blocks of 1 MiB and more are allocations of their own (memory.h),
// so the memory begins at the handle's address. Handles are sent as hexadecimal digits.
#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/gpu.h"

namespace lockstep::engine::cuda {
namespace {

template <class Handle>
std::string handle_text(const Handle& handle) {
  std::string text;
  for (const char byte : handle.reserved) text += fmt::format("{:02x}", std::uint8_t(byte));
  return text;
}

int digit(char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::size_t found = kDigits.find(c);
  return found == std::string_view::npos ? -1 : int(found);
}

template <class Handle>
Handle handle_of(const std::string& text) {
  Handle handle;
  require(text.size() == 2 * sizeof handle.reserved,
          "{} characters are no handle of {} bytes of another process", text.size(),
          sizeof handle.reserved);
  for (std::size_t i = 0; i < sizeof handle.reserved; ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    require(high >= 0 && low >= 0, "'{}' is no handle of another process", text);
    handle.reserved[i] = char(high * 16 + low);
  }
  return handle;
}

// Represents an event of this process, which returns to `home`, or an opened event of another
// process.
class GpuEvent final : public ProcessEvent {
 public:
  GpuEvent(const Context& context, SharedEvents* home, std::unique_ptr<Event> event)
      : context_(context), home_(home), event_(std::move(event)) {}
  ~GpuEvent() override {
    if (home_ != nullptr) home_->give_back(std::move(event_));
  }
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;
  std::string exported() const override {
    invariant(home_ != nullptr, "an event of another process is exported");
    context_.use();
    CUipcEventHandle handle;
    context_.check(context_.driver().ipc_get_event_handle(&handle, event_->handle()),
                   "cuIpcGetEventHandle");
    return handle_text(handle);
  }
  void set(const Ops& ops) const override {
    static_cast<const CudaOps&>(ops).record_event(*event_);
  }
  void hold_back(const Ops& ops) const override {
    static_cast<const CudaOps&>(ops).reduce_behind(*event_);
  }

 private:
  const Context& context_;
  SharedEvents* home_;
  std::unique_ptr<Event> event_;
};

}  // namespace

std::string Gpu::export_memory(const std::byte* memory) {
  const Context& gpu = context();
  gpu.use();
  CUipcMemHandle handle;
  const auto address = address_of(memory);
  gpu.check(gpu.driver().ipc_get_mem_handle(&handle, address), "cuIpcGetMemHandle");
  return handle_text(handle);
}

// Closing may wait for the GPU, so a stuck GPU's memory stays open.
Buffer Gpu::open_memory(const std::string& exported, std::size_t bytes) {
  const auto handle = handle_of<CUipcMemHandle>(exported);
  const Context& gpu = context();
  gpu.use();
  CUdeviceptr address = 0;
  gpu.check(gpu.driver().ipc_open_mem_handle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            "cuIpcOpenMemHandle");
  return Buffer(reinterpret_cast<std::byte*>(std::uintptr_t(address)), bytes, [&gpu, address] {
    if (gpu.stuck()) return;
    gpu.driver().ctx_set_current(gpu.handle());
    gpu.driver().ipc_close_mem_handle(address);
  });
}

Buffer Gpu::pin(std::byte* memory, std::size_t bytes) {
  const Context& gpu = context();
  gpu.use();
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  gpu.check(gpu.driver().mem_host_register(memory, bytes, kFlags), "cuMemHostRegister");
  Buffer pinned(memory, bytes, [&gpu, memory] {
    if (gpu.stuck()) return;
    gpu.driver().ctx_set_current(gpu.handle());
    gpu.driver().mem_host_unregister(memory);
  });
  CUdeviceptr seen = 0;
  gpu.check(gpu.driver().mem_host_get_device_pointer(&seen, memory, 0),
            "cuMemHostGetDevicePointer");
  if (std::uintptr_t(seen) != reinterpret_cast<std::uintptr_t>(memory))
    fail(Code::kDevice, "cuda:{} sees memory of the host at other addresses than the host", index_);
  return pinned;
}

std::unique_ptr<ProcessEvent> Gpu::make_event() {
  const Context& gpu = context();
  SharedEvents& events = [this]() -> SharedEvents& {
    const std::lock_guard lock(mutex_);
    return opened().events;
  }();
  return std::make_unique<GpuEvent>(gpu, &events, events.take());
}

std::unique_ptr<ProcessEvent> Gpu::open_event(const std::string& exported) {
  const auto handle = handle_of<CUipcEventHandle>(exported);
  const Context& gpu = context();
  gpu.use();
  CUevent event = nullptr;
  gpu.check(gpu.driver().ipc_open_event_handle(&event, handle), "cuIpcOpenEventHandle");
  return std::make_unique<GpuEvent>(gpu, nullptr, std::make_unique<Event>(gpu, event));
}

void Gpu::on_waiting(std::function<void(std::chrono::nanoseconds)> look) {
  context().set_on_waiting(std::move(look));
}

void Gpu::give_up() {
  context().give_up();
}

}  // namespace lockstep::engine::cuda
