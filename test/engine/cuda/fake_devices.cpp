// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_devices.h"

#include <string>
#include <utility>

#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/gpu.h"
#include "engine/cuda/gpu_list.h"
#include "test/engine/cuda/fake_libraries.h"
#include "test/engine/cuda/fake_process.h"
#include "test/engine/ops/devices.h"

namespace lockstep::engine {
namespace cuda {

GpuKernels fake_kernels() {
  return {.image = FakeGpu::image,
          .ops = [](const GpuParts& gpu, DType dtype, OpsOptions) -> std::unique_ptr<Ops> {
            const auto loops = [&] {
              return LaneLibraries{std::make_unique<FakeProducts>(gpu.kernels),
                                   std::make_unique<FakeConvolutions>(gpu.kernels)};
            };
            return std::make_unique<CudaOps>(gpu, dtype, loops(), loops());
          },
          .libraries = [] { return std::string("loops"); }};
}

namespace {

FakeGpuOptions with_libraries(FakeGpuOptions options) {
  options.kernels = kernels_with_libraries;
  return options;
}

// Owns one GPU and its fake driver.
class FakeDevice final : public Device {
 public:
  explicit FakeDevice(FakeGpuOptions options) : all_(std::move(options)), gpu_(all_[0]) {}
  DeviceId id() const override { return gpu_.id(); }
  std::string description() const override { return gpu_.description(); }
  std::string instructions() const override { return gpu_.instructions(); }
  DType default_dtype() const override { return gpu_.default_dtype(); }
  bool supports(DType dtype) const override { return gpu_.supports(dtype); }
  Buffer allocate(std::size_t bytes) override { return gpu_.allocate(bytes); }
  std::unique_ptr<Stream> stream() override { return gpu_.stream(); }
  std::unique_ptr<Ops> ops(DType dtype, OpsOptions options) override {
    return gpu_.ops(dtype, options);
  }

 private:
  FakeDevices all_;
  Device& gpu_;
};

}  // namespace

FakeDevices::FakeDevices(FakeGpuOptions options)
    : fake_(with_libraries(std::move(options))),
      gpus_(gpu_list(fake_.driver(), fake_kernels(), Memory::kFraction)) {}

// Creates the contexts here, since a context is created at its first use.
std::vector<std::unique_ptr<Device>> FakeDevices::of_process(int number) const {
  const FakeProcess process(number);
  auto gpus = gpu_list(fake_.driver(), fake_kernels(), Memory::kFraction);
  for (const auto& gpu : gpus) gpu->stream();
  return gpus;
}

std::unique_ptr<Device> fake_device(FakeGpuOptions options) {
  return std::make_unique<FakeDevice>(std::move(options));
}

}  // namespace cuda

std::vector<std::unique_ptr<Device>> devices_under_test() {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(cuda::fake_device());
  return devices;
}

int roundings_under_test(const Device&) {
  return 1;
}

}  // namespace lockstep::engine
