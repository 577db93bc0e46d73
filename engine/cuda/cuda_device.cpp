// SPDX-License-Identifier: MIT
#include "engine/cuda/cuda_device.h"

#include <mutex>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda/cublas_lt.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/cudnn_convolutions.h"
#include "engine/cuda/gpu_links.h"
#include "engine/cuda/gpu_list.h"
#include "engine/cuda/images.h"
#include "engine/cuda/libraries.h"
#include "engine/cuda/plan_caches.h"

namespace lockstep::engine {
namespace cuda {
namespace {

// The libraries, loaded on first use, once for all GPUs. Thread-safe.
class LateLibraries {
 public:
  const Libraries& opened() {
    const std::lock_guard lock(mutex_);
    if (!libraries_) libraries_ = load_libraries();
    return *libraries_;
  }

 private:
  std::mutex mutex_;
  std::optional<Libraries> libraries_;
};

// Returns everything that the choice of a kernel depends on, except the problem.
std::string machine_of(const GpuFacts& gpu, const Cudnn& library) {
  return fmt::format("{}, compute capability {}.{}, {} multiprocessors, {}, own kernels {}",
                     gpu.name, gpu.capability / 10, gpu.capability % 10, gpu.multiprocessors,
                     version_text(library), kOwnKernels);
}

// Returns the error of `load` as one line; empty if it succeeds.
template <class Load>
std::string fault(Load load) {
  try {
    load();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Returns the finding for a library. `version` loads it and returns its name and version.
template <class Version>
LibraryFinding finding(const char* name, Version version) {
  LibraryFinding found{.name = name};
  const std::string why_not = fault([&] { found.text = version(); });
  found.found = why_not.empty();
  if (!found.found) found.text = why_not;
  return found;
}

// Returns the kernels for the GPUs: lockstep's own and those of the libraries.
GpuKernels kernels_with(const CudaOptions& options) {
  const auto libraries = std::make_shared<LateLibraries>();
  const auto caches = std::make_shared<PlanCaches>(options.plan_cache, options.log);
  const bool tf32 = options.tf32;
  const std::size_t candidates = options.plan_candidates;
  return {.image = kernel_image,
          .ops = [libraries, caches, tf32, candidates](const GpuParts& gpu, DType dtype,
                                                       OpsOptions) -> std::unique_ptr<Ops> {
            const Libraries& opened = libraries->opened();
            gpu.context.keep();
            PlanCache& cache = caches->of(machine_of(gpu.context.facts(), opened.convolutions));
            const auto of_lane = [&] {
              return LaneLibraries{
                  std::make_unique<CublasLt>(opened.products, gpu.context, gpu.memory, tf32),
                  std::make_unique<CudnnConvolutions>(opened.convolutions, gpu.context, gpu.memory,
                                                      cache, tf32, candidates)};
            };
            return std::make_unique<CudaOps>(gpu, dtype, of_lane(), of_lane());
          },
          .libraries = [libraries, tf32] { return version_text(libraries->opened(), tf32); },
          .plans = [libraries, caches](const GpuFacts& gpu) -> PlanCache& {
            return caches->of(machine_of(gpu, libraries->opened().convolutions));
          }};
}

}  // namespace
}  // namespace cuda

std::vector<std::unique_ptr<Device>> cuda_devices(const CudaOptions& options) {
  try {
    return cuda::gpu_list(cuda::load_driver(), cuda::kernels_with(options), options.memory_fraction,
                          options.memory_bytes);
  } catch (const Error& error) {
    // This is an ordinary machine without GPUs; `cuda_findings` gives the reason.
    if (error.code() != Code::kUnavailable) throw;
    return {};
  }
}

std::optional<CudaMemory> cuda_memory(Device& device) {
  auto* const gpu = dynamic_cast<cuda::Gpu*>(&device);
  if (gpu == nullptr || !gpu->used()) return std::nullopt;
  return CudaMemory{gpu->memory().most_taken(), gpu->memory().limit()};
}

std::vector<std::string> cuda_findings() {
  std::vector<std::string> lines;
  const std::string driver = cuda::fault([&] { lines = cuda::gpu_findings(cuda::load_driver()); });
  return driver.empty() ? lines : std::vector{driver};
}

std::vector<LibraryFinding> cuda_libraries() {
  return {cuda::finding("cuBLASLt", [] { return cuda::version_text(cuda::load_cublas_lt()); }),
          cuda::finding("cuDNN", [] { return cuda::version_text(cuda::load_cudnn()); }),
          cuda::finding("NVML", [] { return cuda::version_text(cuda::load_nvml()); })};
}

GpuTopology cuda_topology() {
  GpuTopology topology;
  const std::string driver = cuda::fault([&] {
    const cuda::Driver opened = cuda::load_driver();
    std::optional<cuda::Nvml> nvml;
    const std::string why_none = cuda::fault([&] { nvml = cuda::load_nvml(); });
    topology = cuda::gpu_links(opened, nvml ? &*nvml : nullptr, why_none);
  });
  if (!driver.empty()) topology.note = driver;
  return topology;
}

}  // namespace lockstep::engine
