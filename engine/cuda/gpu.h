// SPDX-License-Identifier: MIT
// The device "cuda:0": one GPU. Making it costs milliseconds and none of the GPU's memory: context,
// memory and kernels are made at their first use, so a GPU that nobody works on is left alone. Any
// thread. Everything made with it must be gone before it is. Errors: Error(kDevice).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "engine/cuda/context.h"
#include "engine/cuda/driver.h"
#include "engine/cuda/kernel_module.h"
#include "engine/cuda/memory.h"
#include "engine/cuda/plan_cache.h"
#include "engine/cuda/shared_events.h"
#include "engine/device/device.h"
#include "engine/device/process_sharing.h"

namespace lockstep::engine::cuda {

// What a replica's kernels work with: of the GPU, so they live longer than these.
struct GpuParts {
  const Context& context;
  Memory& memory;
  const KernelModule& kernels;
};

// Raised by every change of an own kernel, or of what is computed by which kernel, that changes
// bits: checkpoints hold it.
inline constexpr int kOwnKernels = 4;

// What is computed on a GPU, and by what. Tests put in parts of their own.
struct GpuKernels {
  std::function<std::span<const std::byte>(DType)> image;  // compiled kernels; lives for ever
  std::function<std::unique_ptr<Ops>(const GpuParts&, DType, OpsOptions)> ops;
  std::function<std::string()> libraries;  // and versions: "cuBLASLt 13.0.0, cuDNN 9.19.0, TF32"
  // Of a kind of GPU; none: nothing is chosen by measuring.
  std::function<PlanCache&(const GpuFacts&)> plans = {};
};

class Gpu final : public Device, public ProcessSharing {
 public:
  // `memory_fraction`, `memory_bytes`: see Memory. Throws Error(kDevice) of a GPU that is too old.
  Gpu(const Driver& driver, int index, GpuKernels kernels,
      double memory_fraction = Memory::kFraction, std::size_t memory_bytes = 0);

  DeviceId id() const override;
  std::string description() const override;
  std::string instructions() const override;
  // The kernels that were chosen by measuring, for all replicas on this GPU and those of its kind:
  // a line each, sorted; they grow as shapes are first computed. Where the text is the same, the
  // last bits are.
  std::string choices() const override;
  void adopt_choices(const std::string& choices) override;
  DType default_dtype() const override;
  bool supports(DType dtype) const override;
  Buffer allocate(std::size_t bytes) override;  // throws Error(kMemory)
  std::unique_ptr<Stream> stream() override;
  bool reach(Device& other) override;  // another GPU: where the driver has peer access
  std::unique_ptr<Ops> ops(DType dtype, OpsOptions options) override;

  // With other processes, by the driver's handles (gpu_sharing.cpp). Events that they may have open
  // stay until this goes, as memory does: what ends a job lies between their end and that.
  std::string place() const override { return facts_.bus_id; }
  std::string export_memory(const std::byte* memory) override;
  Buffer open_memory(const std::string& exported, std::size_t bytes) override;
  Buffer pin(std::byte* memory, std::size_t bytes) override;
  std::unique_ptr<ProcessEvent> make_event() override;
  std::unique_ptr<ProcessEvent> open_event(const std::string& exported) override;
  void on_waiting(std::function<void(std::chrono::nanoseconds)> look) override;
  void give_up() override;

  const GpuFacts& facts() const { return facts_; }
  const Context& context();
  Memory& memory();
  bool used();  // whether anything was asked of it that needs a context, which takes memory

 private:
  struct Opened {
    Opened(const Driver& driver, int index, double memory_fraction, std::size_t memory_bytes);
    Context context;
    Memory memory;
    SharedEvents events;
    std::map<DType, KernelModule> modules;
  };
  Opened& opened();  // with the mutex held

  Driver driver_;
  int index_;
  GpuKernels kernels_;
  double memory_fraction_;
  std::size_t memory_bytes_;
  GpuFacts facts_;
  std::mutex mutex_;
  std::optional<Opened> opened_;
};

}  // namespace lockstep::engine::cuda
