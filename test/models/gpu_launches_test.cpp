// SPDX-License-Identifier: MIT
// Tests how many kernels a model's step queues on a GPU: forward, loss, batch sums, and backward.
// The fake GPU's kernels do nothing; only their names count. A convolution or a product counts as
// one kernel, whatever a library makes of it. Optimizer updates are excluded.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/gpu_list.h"
#include "models/registry.h"
#include "test/engine/cuda/fake_gpu.h"
#include "test/engine/cuda/fake_libraries.h"
#include "test/engine/nn/solo.h"

namespace lockstep::models {
namespace gpu_launches_test {

using engine::DType;
namespace cuda = engine::cuda;

std::span<const cuda::EmulatedKernel> idle_kernels(DType dtype) {
  static std::map<DType, std::vector<cuda::EmulatedKernel>> all;
  std::vector<cuda::EmulatedKernel>& kernels = all[dtype];
  if (kernels.empty()) {
    const auto own = cuda::kernels_with_libraries(dtype);
    kernels.assign(own.begin(), own.end());
    for (cuda::EmulatedKernel& kernel : kernels) kernel.run = [](const void*) {};
  }
  return kernels;
}

class GpuLaunches : public testing::Test {
 protected:
  using Counts = std::map<std::string, std::size_t>;

  // Returns the launches of a step of two rows, of which `used` are in use.
  Counts launches(const std::string& model, std::size_t used) {
    const auto ops = gpus_[0]->ops(DType::kBFloat16, {});
    engine::Solo solo(build(model), *ops, 2);
    solo.state.examples = std::int64_t(used);
    ops->synchronize();
    const std::size_t before = gpu_.kernels_run().size();
    solo.step();
    const engine::Buffer sums = ops->allocate_shared(2 * sizeof(double));
    ops->queue_batch_sums(solo.context.state, solo.graph.losses(), solo.graph.correct(),
                          reinterpret_cast<double*>(sums.data()));
    ops->synchronize();
    Counts counts;
    const std::vector<std::string> names = gpu_.kernels_run();
    for (std::size_t i = before; i < names.size(); ++i) ++counts[names[i]];
    return counts;
  }
  static std::size_t total(const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t(0),
                           [](std::size_t sum, const auto& entry) { return sum + entry.second; });
  }

  cuda::FakeGpu gpu_{{.memory = std::size_t(1) << 30, .kernels = idle_kernels}};
  std::vector<std::unique_ptr<engine::Device>> gpus_ = [this] {
    auto made = cuda::gpu_list(
        gpu_.driver(),
        {.image = cuda::FakeGpu::image,
         .ops = [](const cuda::GpuParts& gpu, DType dtype,
                   engine::OpsOptions) -> std::unique_ptr<engine::Ops> {
           const auto fakes = [&] {
             return cuda::LaneLibraries{std::make_unique<cuda::FakeProducts>(gpu.kernels),
                                        std::make_unique<cuda::FakeConvolutions>(gpu.kernels)};
           };
           return std::make_unique<cuda::CudaOps>(gpu, dtype, fakes(), fakes());
         },
         .libraries = [] { return std::string("idle"); }},
        cuda::Memory::kFraction);
    return made;
  }();
};

// Batch norm reads its memory twice in forward and twice in backward, including the addition and
// ReLU. At the ends of the four downsampling blocks, the second batch norm shares three of these
// kernels. The convolution that computes the second gradient of two branches adds the first.
TEST_F(GpuLaunches, OfResnet50) {
  const Counts counts = launches("resnet50", 2);
  EXPECT_EQ(counts.at("fake_convolution"), 53u + 53 + 52);
  EXPECT_EQ(counts.at("fake_product"), 3u);
  EXPECT_EQ(counts.at("batch_norm_sums"), 53u);
  for (const std::string name : {"forward", "gradient_sums", "backward"}) {
    EXPECT_EQ(counts.at("batch_norm_" + name), 53u - 2 * 4) << name;
    EXPECT_EQ(counts.at("batch_norm_pair_" + name), 4u) << name;
  }
  for (const char* name : {"add", "copy_rows", "clear_rows", "clear_rest", "relu_forward",
                           "relu_gradient", "mask_gradient", "batch_norm_moments"})
    EXPECT_FALSE(counts.contains(name)) << name;
  EXPECT_LE(total(counts), 372u);
}

TEST_F(GpuLaunches, OfMnistCnn) {
  const Counts counts = launches("mnist_cnn", 2);
  EXPECT_FALSE(counts.contains("fake_convolution"));
  EXPECT_EQ(counts.at("narrow_outputs"), 2u);
  for (const char* name : {"few_channel_forward", "few_channel_gradients", "narrow_group_gradient",
                           "narrow_gradient_end"})
    EXPECT_EQ(counts.at(name), 1u) << name;
  EXPECT_EQ(counts.at("fake_product"), 2u + 4);
  EXPECT_FALSE(counts.contains("clear_rest"));
  EXPECT_LE(total(counts), 19u);
}

// If a batch is smaller than planned, products read unused rows, which are cleared before: x and dy
// of both dense layers.
TEST_F(GpuLaunches, OfABatchThatIsNotFull) {
  const Counts counts = launches("mnist_cnn", 1);
  EXPECT_EQ(counts.at("clear_rest"), 2u * 2);
}

}  // namespace gpu_launches_test
}  // namespace lockstep::models
