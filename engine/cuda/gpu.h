// SPDX-License-Identifier: MIT
// The device "cuda:0": one GPU. Making it costs milliseconds and no GPU memory. Context, memory and
// kernels are made on first use, so an unused GPU is left alone. Thread-safe. It must outlive
// everything that was made with it. Throws Error(kDevice).
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

// Holds the parts of the GPU that a replica's kernels use. They outlive the kernels.
struct GpuParts {
  const Context& context;
  Memory& memory;
  const KernelModule& kernels;
};

// The version of lockstep's own kernels. Increment it with every change of a kernel, or of the
// choice of kernels, that changes result bits. Checkpoints store it.
inline constexpr int kOwnKernels = 4;

// Provides the kernels of a GPU. Tests substitute their own.
struct GpuKernels {
  std::function<std::span<const std::byte>(DType)> image;  // compiled kernels; never freed
  std::function<std::unique_ptr<Ops>(const GpuParts&, DType, OpsOptions)> ops;
  std::function<std::string()> libraries;  // with versions: "cuBLASLt 13.0.0, cuDNN 9.19.0, TF32"
  // Returns the plan cache for a kind of GPU. If empty, no kernel is chosen by measurement.
  std::function<PlanCache&(const GpuFacts&)> plans = {};
};

class Gpu final : public Device, public ProcessSharing {
 public:
  // `memory_fraction`, `memory_bytes`: see Memory. Throws Error(kDevice) if the GPU is too old.
  Gpu(const Driver& driver, int index, GpuKernels kernels,
      double memory_fraction = Memory::kFraction, std::size_t memory_bytes = 0);

  DeviceId id() const override;
  std::string description() const override;
  std::string instructions() const override;
  // Returns the kernels that were chosen by measurement for all replicas on GPUs of this kind: one
  // line each, sorted. Lines are added when shapes are first computed. Equal texts mean equal last
  // bits.
  std::string choices() const override;
  void adopt_choices(const std::string& choices) override;
  DType default_dtype() const override;
  bool supports(DType dtype) const override;
  Buffer allocate(std::size_t bytes) override;  // throws Error(kMemory)
  std::unique_ptr<Stream> stream() override;
  bool reach(Device& other) override;  // another GPU with peer access
  std::unique_ptr<Ops> ops(DType dtype, OpsOptions options) override;

  // Sharing with other processes through the driver's handles (gpu_sharing.cpp). Like memory,
  // events that other processes may have open live until this GPU is destroyed. The shutdown
  // handshake of the job lies between the others' end and that.
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
  // Returns whether the context was needed yet. It takes GPU memory.
  bool used();

 private:
  struct Opened {
    Opened(const Driver& driver, int index, double memory_fraction, std::size_t memory_bytes);
    Context context;
    Memory memory;
    SharedEvents events;
    std::map<DType, KernelModule> modules;
  };
  Opened& opened();  // the caller holds the mutex

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
