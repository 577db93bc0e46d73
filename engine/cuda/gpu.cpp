// SPDX-License-Identifier: MIT
#include "engine/cuda/gpu.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

Gpu::Opened::Opened(const Driver& driver, int index, double memory_fraction,
                    std::size_t memory_bytes)
    : context(driver, index), memory(context, memory_fraction, memory_bytes), events(context) {}

Gpu::Gpu(const Driver& driver, int index, GpuKernels kernels, double memory_fraction,
         std::size_t memory_bytes)
    : driver_(driver),
      index_(index),
      kernels_(std::move(kernels)),
      memory_fraction_(memory_fraction),
      memory_bytes_(memory_bytes),
      facts_(facts_of(driver_, index)) {}

DeviceId Gpu::id() const {
  return {"cuda", index_};
}

std::string Gpu::description() const {
  return fmt::format("{} at {}, compute capability {}.{}, {} GiB, driver CUDA {}", facts_.name,
                     facts_.bus_id, facts_.capability / 10, facts_.capability % 10,
                     facts_.memory >> 30, version_text(version_of(driver_)));
}

std::string Gpu::instructions() const {
  return fmt::format("{}, compute capability {}.{}, {} (own kernels {})", facts_.name,
                     facts_.capability / 10, facts_.capability % 10, kernels_.libraries(),
                     kOwnKernels);
}

std::string Gpu::choices() const {
  return kernels_.plans ? kernels_.plans(facts_).text() : "";
}

void Gpu::adopt_choices(const std::string& choices) {
  if (kernels_.plans) kernels_.plans(facts_).adopt(choices);
}

DType Gpu::default_dtype() const {
  return DType::kBFloat16;
}

bool Gpu::supports(DType dtype) const {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

Buffer Gpu::allocate(std::size_t bytes) {
  return memory().allocate(bytes);
}

std::unique_ptr<Stream> Gpu::stream() {
  return std::make_unique<CudaStream>(context());
}

bool Gpu::reach(Device& other) {
  auto* const gpu = dynamic_cast<Gpu*>(&other);
  return gpu != nullptr && context().reach(gpu->context());
}

std::unique_ptr<Ops> Gpu::ops(DType dtype, OpsOptions options) {
  require(supports(dtype),
          "cuda:{} has no kernels for {}; it has them for float32, bfloat16 and float16", index_,
          name(dtype));
  std::unique_lock lock(mutex_);
  Opened& parts = opened();
  const KernelModule& module =
      parts.modules.try_emplace(dtype, parts.context, kernels_.image(dtype)).first->second;
  lock.unlock();  // modules do not move
  return kernels_.ops({parts.context, parts.memory, module}, dtype, options);
}

const Context& Gpu::context() {
  const std::lock_guard lock(mutex_);
  return opened().context;
}

Memory& Gpu::memory() {
  const std::lock_guard lock(mutex_);
  return opened().memory;
}

bool Gpu::used() {
  const std::lock_guard lock(mutex_);
  return opened_.has_value();
}

Gpu::Opened& Gpu::opened() {
  if (!opened_) opened_.emplace(driver_, index_, memory_fraction_, memory_bytes_);
  return *opened_;
}

}  // namespace lockstep::engine::cuda
