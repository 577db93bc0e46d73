// SPDX-License-Identifier: MIT
#include "engine/cpu/cpu_device.h"

#include <hwy/targets.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/quantity.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/device/host_stream.h"

namespace lockstep::engine {
namespace {

// Returns the processor's name in /proc/cpuinfo, or "processor" if it has none.
std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "processor";
}

// The version of the own kernels, stored in checkpoints. Raise it for every change that changes
// bits, in a kernel or in the choice of kernels.
constexpr int kOwnKernels = 4;

std::string library_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

// Returns the readable name of the widest instructions that oneDNN uses.
std::string widest_instructions() {
  if (cpu::has_avx512()) return "AVX-512";
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  if ((unsigned(isa) & unsigned(dnnl::cpu_isa::avx2)) == unsigned(dnnl::cpu_isa::avx2)) {
    return "AVX2";
  }
  return "no AVX2";
}

class CpuDevice final : public Device {
 public:
  DeviceId id() const override { return {"cpu", 0}; }
  std::string description() const override {
    const unsigned cores = std::thread::hardware_concurrency();
    return fmt::format("{}, {}, {}, {}", model_name(), widest_instructions(),
                       count_text(cores, "core"), library_version());
  }
  std::string instructions() const override {
    constexpr std::string_view kPrefix = "cpu_isa_";
    std::string_view library = dnnl_cpu_isa2str(dnnl_cpu_isa_t(dnnl::get_effective_cpu_isa()));
    if (library.starts_with(kPrefix)) library.remove_prefix(kPrefix.size());
    // The first target is the best one that the own kernels are compiled for.
    const char* const own = hwy::TargetName(hwy::SupportedAndGeneratedTargets().front());
    return fmt::format("{} ({}) and {} (own kernels {})", library, library_version(), own,
                       kOwnKernels);
  }
  DType default_dtype() const override { return DType::kFloat32; }
  bool supports(DType dtype) const override {
    return dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  }
  Buffer allocate(std::size_t bytes) override { return Buffer(bytes); }
  std::unique_ptr<Stream> stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<Ops> ops(DType dtype, OpsOptions options) override {
    require(supports(dtype), "cpu:0 has no kernels for {}; it has them for float32 and bfloat16",
            name(dtype));
    return cpu::guarded("start", [&]() -> std::unique_ptr<Ops> {
      if (dtype == DType::kFloat32) return std::make_unique<cpu::CpuOps<float>>(options);
      return std::make_unique<cpu::CpuOps<BFloat16>>(options);
    });
  }
};

}  // namespace

std::unique_ptr<Device> cpu_device() {
  return std::make_unique<CpuDevice>();
}

std::vector<std::string> implementations(const Ops& ops) {
  const auto* own = dynamic_cast<const cpu::CpuKernels*>(&ops);
  if (own == nullptr) return {};
  return {own->implementations().begin(), own->implementations().end()};
}

std::size_t held_by(const Ops& ops) {
  const auto* own = dynamic_cast<const cpu::CpuKernels*>(&ops);
  return own == nullptr ? 0 : own->held();
}

}  // namespace lockstep::engine
