// SPDX-License-Identifier: MIT
// Asks cuDNN, without a GPU, whether it has kernels for each convolution of the models on the GPU
// in h200.json. The tests check that kernels exist, not their results or speed.
// LOCKSTEP_DRIVER_STUB must be the path of the driver's stub (stub/make_stub.py),
// LOCKSTEP_GPU_DESCRIPTION that of the description. Skipped without cuDNN.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cuda/convolution_graph.h"
#include "engine/cuda/plan_cache.h"
#include "engine/cuda/space_to_depth_convolution.h"
#include "engine/nn/graph_plan.h"
#include "models/registry.h"

// Turns the leak sanitizer off: without a GPU, cuDNN creates a cuBLASLt handle that fails, and
// leaks it.
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() {
  return 1;
}

namespace lockstep::engine::cuda {
namespace graphs_test {

using Pass = Convolution::Pass;
constexpr std::size_t kRows = 256;

// Parses a layer's description, which contains all of its sizes.
std::optional<ConvolutionSpec> convolution_of(const PlannedNode& node) {
  const std::string text = node.layer->describe();
  ConvolutionSpec spec;
  std::size_t kernel = 0;
  if (std::sscanf(text.c_str(), "convolution %zu, kernel %zu, stride %zu, padding %zu",
                  &spec.filters, &kernel, &spec.stride, &spec.padding) != 4) {
    return std::nullopt;
  }
  spec.height = node.input_shapes[0][0];
  spec.width = node.input_shapes[0][1];
  spec.channels = node.input_shapes[0][2];
  spec.kernel_height = spec.kernel_width = kernel;
  spec.bias = text.find(", bias") != std::string::npos;
  const bool relu = text.find(", relu") != std::string::npos;
  spec.activation = relu ? Activation::kRelu : Activation::kNone;
  return spec;
}

// Returns the distinct convolutions of a model.
std::vector<ConvolutionSpec> convolutions_of(const std::string& model) {
  std::vector<ConvolutionSpec> all;
  for (const PlannedNode& node : plan_graph(models::build(model)).nodes) {
    const std::optional<ConvolutionSpec> spec = convolution_of(node);
    if (spec && std::find(all.begin(), all.end(), *spec) == all.end()) all.push_back(*spec);
  }
  return all;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Graphs : public testing::Test {
 protected:
  void SetUp() override {
    try {
      cudnn_ = load_cudnn();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    // cuDNN opens libcuda.so.1 by that name, and then gets the library that is already open.
    const std::string stub = environment("LOCKSTEP_DRIVER_STUB");
    void* const driver = dlopen(stub.c_str(), RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(driver, nullptr) << dlerror();
    for (const char* name : {"cuInit", "cuDeviceGet"})
      ASSERT_NE(dlsym(driver, name), nullptr) << "the stub has no function of this name";
    std::ifstream file(environment("LOCKSTEP_GPU_DESCRIPTION"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(text.empty());
    gpu_.emplace(cudnn_, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    gpu_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(text)).finalize();
  }

  std::vector<ConvolutionPlan> plans(const Convolution& call, std::size_t most, bool tf32 = true) {
    return ConvolutionGraph(cudnn_, call, {.device = &*gpu_}, tf32).plans(most);
  }

  // Returns the convolution that is requested in place of `spec`.
  static ConvolutionSpec asked(const ConvolutionSpec& spec, Pass pass) {
    return uses_space_to_depth(spec) && pass != Pass::kGradientOfData ? space_to_depth(spec) : spec;
  }

  // Expects a kernel for each sum of each convolution; otherwise an Error(kDevice) names it.
  void expect_kernels(const std::string& model, DType dtype, bool tf32) {
    for (const ConvolutionSpec& spec : convolutions_of(model)) {
      for (const Pass pass : {Pass::kForward, Pass::kGradientOfData, Pass::kGradientOfWeights}) {
        for (const bool accumulate : {false, true}) {
          if (accumulate && pass == Pass::kForward) continue;
          EXPECT_NO_THROW(plans({pass, asked(spec, pass), kRows, dtype, accumulate}, 1, tf32));
        }
      }
    }
  }

  std::vector<cudnnBackendNumericalNote_t> notes_of(const ConvolutionPlan& plan) {
    CudnnDescriptor configuration(cudnn_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    CudnnDescriptor engine(cudnn_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t handles[] = {configuration.handle(), engine.handle()};
    plan.plan.get_descriptors(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, std::span(handles, 1));
    configuration.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, std::span(handles + 1, 1));
    return engine.get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
  }
  bool has(const ConvolutionPlan& plan, cudnnBackendNumericalNote_t note) {
    const auto notes = notes_of(plan);
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  }

  // Returns everything that the library needs to create the plan in another process.
  static std::string text_of(const ConvolutionPlan& plan) {
    const auto text = plan.plan.get_all<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    return {text.begin(), text.end()};
  }

  Cudnn cudnn_;
  std::optional<CudnnDescriptor> gpu_;
};

TEST_F(Graphs, TheModelsHaveTheConvolutionsThatAreAskedFor) {
  EXPECT_EQ(convolutions_of("mnist_cnn").size(), 2u);
  EXPECT_EQ(convolutions_of("resnet50").size(), 23u);
}

TEST_F(Graphs, EachConvolutionHasAKernelInFloat32) {
  for (const bool tf32 : {true, false}) {
    expect_kernels("mnist_cnn", DType::kFloat32, tf32);
    expect_kernels("resnet50", DType::kFloat32, tf32);
  }
}

TEST_F(Graphs, EachConvolutionHasAKernelInBFloat16) {
  expect_kernels("mnist_cnn", DType::kBFloat16, true);
  expect_kernels("resnet50", DType::kBFloat16, true);
}

TEST_F(Graphs, EachConvolutionHasAKernelInFloat16) {
  expect_kernels("mnist_cnn", DType::kFloat16, true);
  expect_kernels("resnet50", DType::kFloat16, true);
}

// With three channels, the library first makes copies several times as large as the images.
TEST_F(Graphs, AConvolutionAfterSpaceToDepthNeedsNoCopies) {
  constexpr std::size_t kLittle = std::size_t(16) << 20;
  const ConvolutionSpec stem = convolutions_of("resnet50").front();
  ASSERT_TRUE(uses_space_to_depth(stem));
  for (const Pass pass : {Pass::kForward, Pass::kGradientOfWeights}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const auto all = plans({pass, asked(stem, pass), kRows, dtype, false}, 8);
      ASSERT_FALSE(all.empty()) << int(pass);
      EXPECT_LT(all.front().workspace, kLittle);
    }
    EXPECT_GT(plans({pass, stem, kRows, DType::kBFloat16, false}, 1).front().workspace, kLittle);
  }
}

TEST_F(Graphs, NoKernelGivesOtherBitsTheNextTime) {
  constexpr std::size_t kAll = 1000;
  for (const ConvolutionSpec& spec : convolutions_of("mnist_cnn")) {
    for (const Pass pass : {Pass::kGradientOfData, Pass::kGradientOfWeights}) {
      const auto all = plans({pass, spec, kRows, DType::kFloat32, false}, kAll);
      EXPECT_GT(all.size(), 3u);
      for (const ConvolutionPlan& plan : all) {
        EXPECT_FALSE(has(plan, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
        EXPECT_LE(plan.workspace, ConvolutionGraph::kMostWorkspace);
      }
    }
  }
}

TEST_F(Graphs, Float32IsRoundedToTf32OnlyWhereThatIsAllowed) {
  const ConvolutionSpec spec = convolutions_of("resnet50").back();
  const Convolution call{Pass::kForward, spec, kRows, DType::kFloat32, false};
  EXPECT_TRUE(has(plans(call, 1).front(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
  for (const ConvolutionPlan& plan : plans(call, 1000, false)) {
    EXPECT_FALSE(has(plan, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
  }
}

// A plan built from a file and another graph has the same engine and the same knobs.
TEST_F(Graphs, AKeptChoiceBuildsTheSamePlan) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "kept_plans";
  std::filesystem::remove_all(folder);
  std::size_t compared = 0;
  for (const ConvolutionSpec& spec : convolutions_of("resnet50")) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (const Pass pass : {Pass::kForward, Pass::kGradientOfData, Pass::kGradientOfWeights}) {
        const Convolution call{pass, spec, kRows, dtype, pass == Pass::kGradientOfWeights};
        const ConvolutionGraph graph(cudnn_, call, {.device = &*gpu_}, true);
        const std::vector<ConvolutionPlan> found = graph.plans(4);
        const ConvolutionPlan& last = found.back();
        PlanCache(folder, "H200", Log())
            .choose(
                graph.problem(), [](const auto&) { return false; },
                [&] { return to_text(last.choice); });
        const ConvolutionGraph other(cudnn_, call, {.device = &*gpu_}, true);
        std::optional<ConvolutionPlan> built;
        PlanCache(folder, "H200", Log())
            .choose(
                other.problem(),
                [&](const std::string& text) {
                  built = other.plan(engine_choice_of(text).value());
                  return built.has_value();
                },
                [] {
                  ADD_FAILURE() << "nothing was kept";
                  return "none";
                });
        ASSERT_TRUE(built.has_value()) << graph.problem();
        EXPECT_EQ(text_of(*built), text_of(last));
        EXPECT_EQ(built->workspace, last.workspace);
        compared += text_of(last) != text_of(found.front());
      }
    }
  }
  EXPECT_GT(compared, 100u);  // plans other than the library's first choice
}

TEST_F(Graphs, AChoiceThatTheLibraryDoesNotHaveIsNone) {
  const ConvolutionSpec spec = convolutions_of("resnet50").back();
  const Convolution call{Pass::kForward, spec, kRows, DType::kFloat32, false};
  const ConvolutionGraph graph(cudnn_, call, {.device = &*gpu_}, true);
  const EngineChoice choice = graph.plans(1).front().choice;
  ASSERT_FALSE(choice.knobs.empty());
  EXPECT_TRUE(graph.plan(choice).has_value());
  for (const std::int64_t engine : {-1, 100000}) {
    EngineChoice other = choice;
    other.engine = engine;
    EXPECT_FALSE(graph.plan(other).has_value()) << engine;
  }
  EngineChoice other = choice;
  other.knobs.begin()->second = 100000;
  EXPECT_FALSE(graph.plan(other).has_value());
  other = choice;
  other.knobs.emplace(EngineChoice::kKnobs - 1, 0);
  EXPECT_FALSE(graph.plan(other).has_value());
}

TEST_F(Graphs, AChoiceThatRoundsToTf32IsNoneWhereThatIsNotAllowed) {
  const ConvolutionSpec spec = convolutions_of("resnet50").back();
  const Convolution call{Pass::kForward, spec, kRows, DType::kFloat32, false};
  const ConvolutionGraph rounded(cudnn_, call, {.device = &*gpu_}, true);
  const ConvolutionGraph exact(cudnn_, call, {.device = &*gpu_}, false);
  EXPECT_FALSE(exact.plan(rounded.plans(1).front().choice).has_value());
  EXPECT_NE(exact.problem(), rounded.problem());
}

TEST_F(Graphs, ABatchOfNoImagesIsRefusedWithTheNameOfTheCall) {
  ConvolutionSpec spec{.height = 8, .width = 8, .channels = 1, .filters = 1};
  spec.bias = false;
  const Convolution call{Pass::kForward, spec, 0, DType::kFloat32, false};
  try {
    plans(call, 1);
    FAIL() << "a batch of no images has a plan";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDevice);
    EXPECT_NE(std::string(error.what()).find("cudnnBackendFinalize"), std::string::npos)
        << error.what();
  }
}

}  // namespace graphs_test
}  // namespace lockstep::engine::cuda
