// SPDX-License-Identifier: MIT
// Tests how CudnnConvolutions uses cuDNN's engines, with a fake cuDNN whose engines a test chooses.
#include "engine/cuda/cudnn_convolutions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/reference/reference_device.h"
#include "test/engine/cuda/fake_cudnn.h"
#include "test/engine/cuda/fake_gpu.h"

namespace lockstep::engine::cuda {
namespace cudnn_convolutions_test {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Pass = Convolution::Pass;
using Engine = FakeCudnn::Engine;

constexpr std::size_t kRows = 3, kCandidates = 8;
constexpr StepState kState{.examples = kRows};
constexpr ConvolutionSpec kBare{.height = 6,
                                .width = 5,
                                .channels = 3,
                                .filters = 4,
                                .kernel_height = 3,
                                .kernel_width = 2,
                                .stride = 2,
                                .padding = 1,
                                .bias = false};

class CudnnConvolutionsTest : public testing::Test {
 protected:
  CudnnConvolutionsTest()
      : driver_(gpu_.driver()),
        context_(driver_, 0),
        memory_(context_),
        stream_(context_),
        library_(driver_),
        functions_(library_.functions()) {
    library_.engines = {{.time = 3}, {.time = 1}, {.time = 2}};
  }

  // Creates the convolutions of a new process.
  void make(bool tf32 = true) {
    convolutions_.reset();
    cache_.emplace(folder_, "a GPU", log_);
    make_beside(tf32);
  }
  // Creates the convolutions of another replica of the process.
  void make_beside(bool tf32 = true) {
    convolutions_.emplace(functions_, context_, memory_, *cache_, tf32, kCandidates);
  }
  // Makes the engine the slowest, so that a process that times again chooses another.
  void slow_down(Engine& engine) { engine.time = 50; }
  // Returns the engines that ran during one call of the shape.
  std::vector<const Engine*> run_alone(const Convolution& call) {
    library_.ran.clear();
    run(call);
    return library_.ran;
  }
  Tensor random(std::size_t rows, std::size_t columns) {
    buffers_.push_back(memory_.allocate(rows * columns * sizeof(float)));
    const Tensor tensor{buffers_.back().data(), {rows, columns}, DType::kFloat32};
    for (std::size_t i = 0; i < tensor.elements(); ++i) tensor.as<float>()[i] = uniform_(random_);
    return tensor;
  }
  Tensor copy(Tensor from) {
    const Tensor to = random(from.rows(), from.columns());
    std::copy_n(from.as<float>(), from.elements(), to.as<float>());
    return to;
  }
  void expect_same(Tensor a, Tensor b) {
    stream_.synchronize();
    for (std::size_t i = 0; i < a.elements(); ++i) {
      ASSERT_NEAR(a.as<float>()[i], b.as<float>()[i], 1e-5) << "element " << i;
    }
  }
  // Queues one call of the shape.
  void run(const Convolution& call) {
    const std::size_t most = kRows * std::max(kBare.inputs(), kBare.outputs());
    const Tensor a = random(1, most), b = random(1, most), c = random(1, most);
    convolutions_->run(stream_, call, a.data, b.data, b.data, c.data);
    stream_.synchronize();
  }

  FakeGpu gpu_;
  Driver driver_;
  Context context_;
  Memory memory_;
  CudaStream stream_;
  FakeCudnn library_;
  Cudnn functions_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<Ops> reference_ = reference_ops(DType::kFloat32);
  std::filesystem::path folder_;  // empty: choices are not kept
  std::vector<std::string> warnings_;
  Log log_{"", Log::Level::kInfo,
           [this](Log::Level, std::string_view line) { warnings_.emplace_back(line); }};
  std::optional<PlanCache> cache_;
  std::optional<CudnnConvolutions> convolutions_;
  std::mt19937 random_{5};
  std::uniform_real_distribution<float> uniform_{-1, 1};
};

constexpr Convolution kForward{Pass::kForward, kBare, kRows, DType::kFloat32, false};

TEST_F(CudnnConvolutionsTest, ForwardIsThatOfTheReference) {
  make();
  for (int flags = 0; flags < 4; ++flags) {
    ConvolutionSpec spec = kBare;
    spec.bias = (flags & 1) != 0;
    spec.activation = (flags & 2) != 0 ? Activation::kRelu : Activation::kNone;
    const Tensor x = random(kRows, spec.inputs()), w = random(1, spec.weights()), b = random(1, 4);
    const Tensor y = random(kRows, spec.outputs()), expected = copy(y);
    Tensor bias = b;
    bias.shape = {4};
    reference_->convolution_forward(&kState, spec, x, w, spec.bias ? bias : Tensor{}, expected);
    convolutions_->run(stream_, {Pass::kForward, spec, kRows, DType::kFloat32, false}, x.data,
                       w.data, b.data, y.data);
    expect_same(y, expected);
  }
}

// The gradients are also correct in the first call, which tries several engines.
TEST_F(CudnnConvolutionsTest, GradientsAreThoseOfTheReference) {
  for (const bool accumulate : {false, true}) {
    make();
    const Tensor x = random(kRows, kBare.inputs()), w = random(1, kBare.weights());
    const Tensor y = random(kRows, kBare.outputs()), dy = random(kRows, kBare.outputs());
    const Tensor dx = random(kRows, kBare.inputs()), dw = random(1, kBare.weights());
    const Tensor expected_dx = copy(dx), expected_dw = copy(dw), before = copy(dx);
    reference_->convolution_backward(&kState, kBare, x, y, dy, w, expected_dx, expected_dw, {},
                                     accumulate);
    for (std::size_t i = 0; accumulate && i < dx.elements(); ++i) {
      expected_dx.as<float>()[i] += before.as<float>()[i];
    }
    convolutions_->run(stream_, {Pass::kGradientOfData, kBare, kRows, DType::kFloat32, accumulate},
                       dy.data, w.data, nullptr, dx.data);
    convolutions_->run(stream_,
                       {Pass::kGradientOfWeights, kBare, kRows, DType::kFloat32, accumulate},
                       x.data, dy.data, nullptr, dw.data);
    expect_same(dx, expected_dx);
    expect_same(dw, expected_dw);
  }
}

// The library refuses empty tensors.
TEST_F(CudnnConvolutionsTest, ABatchWithoutRowsHasGradientsOfWeightsThatAreZero) {
  make();
  const Tensor none = random(1, 1), dw = random(1, kBare.weights()), kept = copy(dw);
  for (const Pass pass : {Pass::kForward, Pass::kGradientOfData})
    convolutions_->run(stream_, {pass, kBare, 0, DType::kFloat32, false}, none.data, dw.data,
                       nullptr, none.data);
  const auto gradient = [&](bool accumulate) {
    convolutions_->run(stream_, {Pass::kGradientOfWeights, kBare, 0, DType::kFloat32, accumulate},
                       none.data, none.data, nullptr, dw.data);
  };
  gradient(true);
  expect_same(dw, kept);
  gradient(false);
  std::fill_n(kept.as<float>(), kept.elements(), 0.0f);
  expect_same(dw, kept);
}

TEST_F(CudnnConvolutionsTest, NanGoesThroughRelu) {
  make();
  const ConvolutionSpec spec{.height = 1,
                             .width = 1,
                             .channels = 1,
                             .filters = 1,
                             .bias = false,
                             .activation = Activation::kRelu};
  const Tensor x = random(1, 1), w = random(1, 1), y = random(1, 1);
  x.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  convolutions_->run(stream_, {Pass::kForward, spec, 1, DType::kFloat32, false}, x.data, w.data,
                     nullptr, y.data);
  stream_.synchronize();
  EXPECT_TRUE(std::isnan(y.as<float>()[0]));
}

TEST_F(CudnnConvolutionsTest, TheFastestEngineIsKept) {
  make();
  run(kForward);
  EXPECT_EQ(library_.ran.back(), &library_.engines[1]);
  const std::size_t tried = library_.ran.size(), asked = library_.questions;
  EXPECT_GT(tried, library_.engines.size());
  run(kForward);
  EXPECT_EQ(library_.ran.size(), tried + 1);
  EXPECT_EQ(library_.ran.back(), &library_.engines[1]);
  EXPECT_EQ(library_.questions, asked);
}

TEST_F(CudnnConvolutionsTest, EachShapeIsTimedForItself) {
  make();
  run(kForward);
  const std::size_t asked = library_.questions;
  Convolution other = kForward;
  other.rows = kRows - 1;
  run(other);
  EXPECT_EQ(library_.questions, asked + 1);
  other.pass = Pass::kGradientOfWeights;
  run(other);
  EXPECT_EQ(library_.questions, asked + 2);
  other.accumulate = true;
  run(other);
  EXPECT_EQ(library_.questions, asked + 3);
}

TEST_F(CudnnConvolutionsTest, AtMostSoManyEnginesAreTried) {
  library_.engines.assign(20, {});
  library_.engines.back().time = 0;
  make();
  run(kForward);
  const auto last = std::max_element(library_.ran.begin(), library_.ran.end());
  EXPECT_EQ(*last, &library_.engines[kCandidates - 1]);
}

TEST_F(CudnnConvolutionsTest, EnginesThatMayNotOrCannotRunAreLeftOut) {
  library_.engines = {
      {.notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
      {.notes = {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}},
      {.notes = {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}},
      {.notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}},
      {.workspace = ConvolutionGraph::kMostWorkspace + 1},
      {.builds = false},
      {.runs = false},
      {.time = 50}};
  make(false);
  run(kForward);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(std::count(library_.ran.begin(), library_.ran.end(), &library_.engines[i]), 0) << i;
  }
  EXPECT_EQ(library_.ran.back(), &library_.engines[7]);
}

TEST_F(CudnnConvolutionsTest, TensorCoresServeFloat32WhereTf32IsAllowed) {
  library_.engines = {{.notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}}};
  make(true);
  run(kForward);
  EXPECT_EQ(library_.ran.back(), &library_.engines[0]);
}

TEST_F(CudnnConvolutionsTest, TheLastResortServesWhereNothingElseDoes) {
  library_.engines = {};
  library_.last_resort = {{}};
  make();
  run(kForward);
  EXPECT_EQ(library_.ran.back(), &library_.last_resort[0]);
}

TEST_F(CudnnConvolutionsTest, AnotherReplicaTakesTheChoiceOfTheFirst) {
  make();
  run(kForward);
  slow_down(library_.engines[1]);
  const std::size_t asked = library_.questions;
  make_beside();
  EXPECT_THAT(run_alone(kForward), ElementsAre(&library_.engines[1]));
  EXPECT_EQ(library_.questions, asked);
}

// Keeps the engine and its knobs: the two fastest choices differ only in these.
class KeptChoices : public CudnnConvolutionsTest {
 protected:
  KeptChoices() {
    folder_ = std::filesystem::path(testing::TempDir()) / "kept_choices";
    std::filesystem::remove_all(folder_);
    library_.engines[1].knobs = {{2, 5}, {13, -1}};
    library_.engines[2].knobs = {{2, 6}};
  }
};

TEST_F(KeptChoices, ServeTheNextProcess) {
  make();
  run(kForward);
  const std::string text = cache_->text();
  EXPECT_THAT(text, EndsWith(" = 1 2=5 13=-1\n"));
  slow_down(library_.engines[1]);
  make();
  EXPECT_THAT(run_alone(kForward), ElementsAre(&library_.engines[1]));
  EXPECT_EQ(cache_->text(), text);
  EXPECT_THAT(warnings_, IsEmpty());
}

// If the GPU has no memory for a workspace, the next smaller candidates are timed, with a warning.
// The next process, which may have more memory, times all of them.
TEST_F(KeptChoices, AreNotThoseOfARunThatWasShortOfMemory) {
  constexpr std::size_t kMebibyte = std::size_t(1) << 20;
  library_.engines = {{.time = 1, .workspace = 100 * kMebibyte},
                      {.time = 2, .workspace = 60 * kMebibyte},
                      {.time = 4, .workspace = 20 * kMebibyte},
                      {.time = 3, .workspace = 10 * kMebibyte}};
  make();
  {
    const Buffer others = memory_.allocate(memory_.limit() - 40 * kMebibyte);
    run(kForward);
    EXPECT_EQ(library_.ran.back(), &library_.engines[3]);
    for (const Engine* engine : library_.ran)
      EXPECT_LE(engine->workspace, 20 * kMebibyte) << "its workspace was not there";
    EXPECT_THAT(warnings_,
                ElementsAre(testing::AllOf(HasSubstr("2 of 4 kernels for the convolution, forward"),
                                           HasSubstr("no memory for workspace of convolutions"))));
    warnings_.clear();
    make_beside();
    EXPECT_THAT(run_alone(kForward), ElementsAre(&library_.engines[3])) << "as the first replica";
  }
  make();
  run(kForward);
  EXPECT_EQ(library_.ran.back(), &library_.engines[0]);
  EXPECT_THAT(warnings_, IsEmpty());

  make();
  const Buffer others = memory_.allocate(memory_.limit() - 40 * kMebibyte);
  run(kForward);
  EXPECT_EQ(library_.ran.back(), &library_.engines[3]) << "the kept one has no room";
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("has no room"), HasSubstr("cannot be used any more"),
                                     HasSubstr("2 of 4 kernels")));
}

TEST_F(CudnnConvolutionsTest, WhereNoWorkspaceFitsTheErrorSaysSo) {
  constexpr std::size_t kMebibyte = std::size_t(1) << 20;
  library_.engines = {{.workspace = 100 * kMebibyte}, {.workspace = 60 * kMebibyte}};
  make();
  const Buffer others = memory_.allocate(memory_.limit() - 40 * kMebibyte);
  try {
    run(kForward);
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kMemory);
    EXPECT_THAT(error.what(), HasSubstr("workspace of convolutions"));
  }
}

TEST_F(KeptChoices, ComputeWhatTheReferenceDoes) {
  for (int process = 0; process < 2; ++process) {
    make();
    const Tensor x = random(kRows, kBare.inputs()), w = random(1, kBare.weights());
    const Tensor y = random(kRows, kBare.outputs()), expected = copy(y);
    reference_->convolution_forward(&kState, kBare, x, w, {}, expected);
    convolutions_->run(stream_, kForward, x.data, w.data, nullptr, y.data);
    expect_same(y, expected);
  }
}

TEST_F(KeptChoices, AreOfAFallbackToo) {
  library_.last_resort = {{.time = 2}, {.time = 1}};
  const std::vector<Engine> engines = std::exchange(library_.engines, {});
  make();
  run(kForward);
  library_.engines = engines;
  make();
  EXPECT_THAT(run_alone(kForward), ElementsAre(&library_.last_resort[1]));
}

// The warning comes once, because the new choice replaces the old one.
TEST_F(KeptChoices, AreTimedAnewWithAWarningWhereTheyCannotBeBuilt) {
  const std::vector<std::function<void(Engine&)>> changes{
      [](Engine& engine) { engine.builds = false; }, [](Engine& engine) { engine.knobs[2] = 7; },
      [](Engine& engine) { engine.notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}; },
      [](Engine& engine) { engine.workspace = ConvolutionGraph::kMostWorkspace + 1; }};
  const std::vector<Engine> engines = library_.engines;
  for (const auto& change : changes) {
    std::filesystem::remove_all(folder_);
    library_.engines = engines;
    make();
    run(kForward);
    change(library_.engines[1]);
    slow_down(library_.engines[1]);
    make();
    run(kForward);
    EXPECT_EQ(library_.ran.back(), &library_.engines[2]);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("(1 2=5 13=-1) cannot be used any more")));
    make();
    EXPECT_THAT(run_alone(kForward), ElementsAre(&library_.engines[2]));
    EXPECT_EQ(warnings_.size(), 1u);
    warnings_.clear();
  }
}

TEST_F(KeptChoices, ThatAreNoneAreTimedAnew) {
  make();
  run(kForward);
  const std::string line = cache_->text();
  const std::string problem = line.substr(0, line.find(" = "));
  for (const std::string text :
       {"", "1 ", "1 2", "1 2=", "1 2=5 13=-1 ", "1 2=5 2=5", "1 64=0", "1 -1=0", "1,2=5", "x",
        "99999999999999999999", "1 2=99999999999999999999"}) {
    EXPECT_FALSE(engine_choice_of(text)) << text;
    if (text.empty()) continue;
    std::filesystem::remove_all(folder_);
    PlanCache(folder_, "a GPU", log_).choose(problem, {}, [&] { return text; });
    warnings_.clear();
    make();
    run(kForward);
    EXPECT_EQ(cache_->text(), line);
    EXPECT_EQ(warnings_.size(), 1u);
  }
}

// The key contains the complete description of the graph, and the precision if it matters.
TEST_F(KeptChoices, AreThoseOfTheSameProblemAlone) {
  std::vector<Convolution> calls(11, kForward);
  calls[1].pass = calls[2].pass = calls[3].pass = Pass::kGradientOfWeights;
  calls[2].accumulate = true;
  calls[3].dtype = DType::kBFloat16;
  calls[4].spec.bias = true;
  calls[5].spec.activation = Activation::kRelu;
  calls[6].rows = 2;
  calls[7].spec.stride = 3;
  calls[8].spec.padding = 0;
  calls[9].spec.kernel_width = 1;
  calls[10].spec.filters = 2;
  make();
  for (const Convolution& call : calls) run(call);
  EXPECT_EQ(library_.questions, calls.size());
  make(false);
  run(calls[0]);
  EXPECT_EQ(library_.questions, calls.size() + 1);
  run(calls[3]);
  EXPECT_EQ(library_.questions, calls.size() + 1);
}

TEST_F(KeptChoices, AreNoneOfAnEngineThatDoesNotRun) {
  library_.engines = {{.runs = false}};
  make();
  EXPECT_THROW(run(kForward), Error);
  EXPECT_EQ(cache_->text(), "");
  library_.engines = {{.runs = false}, {}};
  make();
  run(kForward);
  EXPECT_THAT(warnings_, IsEmpty());
}

// A captured graph may still write to the first workspace.
TEST_F(CudnnConvolutionsTest, AWorkspaceStaysWhenALargerOneIsNeeded) {
  constexpr std::size_t kMiB = std::size_t(1) << 20;
  make();
  const std::size_t before = memory_.taken();
  library_.engines = {{.workspace = 2 * kMiB}};
  run(kForward);
  Convolution other = kForward;
  other.rows = kRows - 1;
  library_.engines = {{.workspace = 4 * kMiB}};
  run(other);
  buffers_.clear();
  EXPECT_GE(memory_.taken(), before + 6 * kMiB);
}

TEST_F(CudnnConvolutionsTest, GivesBackAllThatItMade) {
  make();
  run(kForward);
  EXPECT_GT(library_.objects(), 0u);
  convolutions_.reset();
  buffers_.clear();
  EXPECT_EQ(library_.objects(), 0u);
  EXPECT_EQ(memory_.taken(), 0u);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDevice);
    return error.what();
  }
  return "no error";
}

TEST_F(CudnnConvolutionsTest, ErrorsSayWhatWasAskedFor) {
  make();
  library_.engines = {{.runs = false}};
  EXPECT_EQ(message_of([&] { run(kForward); }),
            "cuDNN: cudnnBackendExecute failed: CUDNN_STATUS_OF_A_FAKE (the fake says no)");
  make();
  library_.engines = {};
  EXPECT_EQ(message_of([&] { run(kForward); }),
            "cuDNN 90000 has no kernel that gives the same bits every time within 256 MiB of "
            "workspace for the convolution, forward, of 3 images 6x5x3 of float32, 4 filters 3x2, "
            "stride 2, padding 1 (the fake says no)");
}

}  // namespace cudnn_convolutions_test
}  // namespace lockstep::engine::cuda
