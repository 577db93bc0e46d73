// SPDX-License-Identifier: MIT
#include "engine/cuda/kernel_module.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

// Reports a driver that cannot translate the kernels. GPUs newer than the compiled kernels take
// PTX, which the driver translates if it knows the toolkit that made it.
void require_known(const Context& context, CUresult loaded) {
  if (loaded != CUDA_ERROR_UNSUPPORTED_PTX_VERSION && loaded != CUDA_ERROR_NO_BINARY_FOR_GPU)
    return;
  const GpuFacts& facts = context.facts();
  fail(Code::kDevice,
       "cuda:{}: its driver, for CUDA {}, cannot translate lockstep's kernels for {} (compute "
       "capability {}.{}): install a driver for CUDA {} or newer, or build lockstep with CUDA {}",
       context.index(), version_text(version_of(context.driver())), facts.name,
       facts.capability / 10, facts.capability % 10, version_text(CUDA_VERSION),
       version_text(version_of(context.driver())));
}

// Returns whether kernels use programmatic dependent launch. The GPU may then start them while the
// previous kernel of the stream runs, and they wait themselves (`wait_for_earlier_kernels` in
// grid.cuh). The driver keeps the full order behind copies and awaited events, and for kernels that
// libraries launch without this attribute. Drivers capture it in graphs since CUDA 12.3.
bool can_start_early(const Context& context) {
  return context.facts().capability >= 90 && version_of(context.driver()) >= 12030;
}

constexpr unsigned kFreelyShared = 48 << 10;  // bytes per block that need no attribute

}  // namespace

// Loads all kernels. Otherwise the driver loads a kernel on its first launch, which may wait for
// all work on the GPU and is impossible during capture.
KernelModule::KernelModule(const Context& context, std::span<const std::byte> image)
    : context_(&context), early_(can_start_early(context)) {
  invariant(!image.empty(), "a module without an image");
  context.use();
  const Driver& driver = context.driver();
  const CUresult loaded = driver.module_load_data(&module_, image.data());
  require_known(context, loaded);
  context.check(loaded, "cuModuleLoadData");
  try {
    unsigned count = 0;
    context.check(driver.module_get_function_count(&count, module_), "cuModuleGetFunctionCount");
    std::vector<CUfunction> all(count);
    context.check(driver.module_enumerate_functions(all.data(), count, module_),
                  "cuModuleEnumerateFunctions");
    for (const CUfunction function : all) {
      const char* name = nullptr;
      context.check(driver.func_get_name(&name, function), "cuFuncGetName");
      context.check(driver.func_load(function), "cuFuncLoad");
      kernels_.emplace(name, Kernel{function, kFreelyShared});
    }
  } catch (...) {
    driver.module_unload(module_);
    throw;
  }
}

KernelModule::~KernelModule() {
  if (context_->stuck()) return;
  const Driver& driver = context_->driver();
  // Unloading applies to the current context.
  try {
    context_->use();
    driver.module_unload(module_);
  } catch (const Error&) {
    // The context is gone, and the module with it.
  }
}

void KernelModule::start(CudaStream& stream, Grid grid, const char* name,
                         const void* arguments) const {
  if (grid.blocks == 0 || grid.rows == 0) return;
  invariant(grid.threads % 32 == 0 && grid.threads >= 32 && grid.threads <= 1024,
            "a block has whole warps of 32 threads, and at most 1024");
  invariant(grid.rows <= 65535, "a grid has at most 65535 rows of blocks");
  const auto found = kernels_.find(std::string_view(name));
  if (found == kernels_.end()) broken(fmt::format("there is no kernel {} in the module", name));
  Kernel& kernel = found->second;
  stream.queue([&] {
    context_->use();
    if (grid.shared > kFreelyShared) {
      // The value is never lowered, since another thread may be about to launch with more.
      const std::lock_guard lock(mutex_);
      if (grid.shared > kernel.shared)
        context_->check(
            context_->driver().func_set_attribute(
                kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, int(grid.shared)),
            "cuFuncSetAttribute");
      kernel.shared = std::max(kernel.shared, grid.shared);
    }
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = grid.blocks;
    config.gridDimY = grid.rows;
    config.gridDimZ = 1;
    config.blockDimX = grid.threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = grid.shared;
    config.hStream = stream.handle();
    config.attrs = &attribute;
    config.numAttrs = early_ ? 1 : 0;
    // The driver copies the arguments before it returns, and does not write to them.
    void* parameters[] = {const_cast<void*>(arguments)};
    const CUresult result =
        context_->driver().launch_kernel_ex(&config, kernel.function, parameters, nullptr);
    if (result != CUDA_SUCCESS)
      context_->check(result, fmt::format("cuLaunchKernelEx of {}", name).c_str());
  });
}

}  // namespace lockstep::engine::cuda
