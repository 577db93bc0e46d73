// SPDX-License-Identifier: MIT
// Tests that weight gradients that are deferred as long as a graph allows equal immediate ones.
// Their inputs stay valid until then.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "engine/reference/reference_device.h"
#include "engine/reference/reference_ops.h"
#include "test/engine/nn/sample_graphs.h"
#include "test/engine/nn/solo.h"

namespace lockstep::engine {
namespace graph_apart_test {

// Runs backward without weight gradients, and computes these as late as possible.
class LateOps final : public ReferenceOps<double> {
 public:
  explicit LateOps(std::size_t bytes) : bytes_(bytes) {}
  std::size_t apart_bytes() const override { return bytes_; }
  void begin_apart(std::size_t keep) override {
    EXPECT_LT(keep, kMostApart);
    make_all_but(keep);
    apart_ = true;
  }
  void end_apart() override { apart_ = false; }
  void join_apart() override { make_all_but(0); }
  std::size_t most_late() const { return most_late_; }
  std::size_t made_late() const { return made_late_; }

  void dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y, Tensor dy,
                      Tensor w, Tensor dx, Tensor dw, Tensor db, bool accumulate) override {
    const auto backward = [=, this](DenseSpec made, Tensor to, Tensor weights, Tensor bias) {
      ReferenceOps::dense_backward(state, made, x, y, dy, w, to, weights, bias, accumulate);
    };
    split(state, spec, y, dy, dx, dw, db, backward);
  }
  void convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor y,
                            Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                            bool accumulate) override {
    const auto backward = [=, this](ConvolutionSpec made, Tensor to, Tensor weights, Tensor bias) {
      ReferenceOps::convolution_backward(state, made, x, y, dy, w, to, weights, bias, accumulate);
    };
    split(state, spec, y, dy, dx, dw, db, backward);
  }

 private:
  template <class Spec, class Backward>
  void split(const StepState* state, Spec spec, Tensor y, Tensor dy, Tensor dx, Tensor dw,
             Tensor db, Backward backward) {
    if (!apart_) return backward(spec, dx, dw, db);
    ASSERT_TRUE(dx);
    if (spec.activation == Activation::kRelu) relu_gradient(state, y, dy, dy);
    spec.activation = Activation::kNone;
    backward(spec, dx, {}, {});
    late_.push_back([=] { backward(spec, {}, dw, db); });
    most_late_ = std::max(most_late_, late_.size());
  }
  void make_all_but(std::size_t keep) {
    for (; late_.size() > keep; late_.pop_front(), ++made_late_) late_.front()();
  }

  std::size_t bytes_;
  bool apart_ = false;
  std::deque<std::function<void()>> late_;
  std::size_t most_late_ = 0, made_late_ = 0;
};

// Returns the accumulated gradient of two batches.
std::vector<double> gradient(const GraphSpec& spec, Ops& ops, GraphOptions options = {}) {
  Solo solo(spec, ops, 5, 1, options);
  solo.step();
  solo.step(true);
  return solo.gradient();
}

TEST(GraphApart, LateGradientsAreThoseMadeAtOnce) {
  const auto plain = reference_ops(DType::kFloat64);
  for (const GraphSpec& spec : sample_graphs()) {
    const std::vector<double> expected = gradient(spec, *plain);
    for (const std::size_t bytes : {std::size_t(8) << 10, std::size_t(1) << 30}) {
      LateOps late(bytes);
      EXPECT_EQ(gradient(spec, late), expected) << spec.name() << ", " << bytes << " bytes";
      EXPECT_GT(late.made_late(), 0u) << spec.name();
    }
  }
}

// The gradients are also the same if their inputs are recomputed.
TEST(GraphApart, LateGradientsOfBlocksThatRunAgainAreThoseMadeAtOnce) {
  GraphSpec spec("m", {6, 6, 2});
  spec.then("stem", convolution(4, 3, {.padding = 1}));
  for (const char* name : {"a", "b", "c"}) {
    spec.begin_block();
    spec.then(std::string(name) + ".conv1", convolution(4, 3, {.padding = 1}));
    spec.then(std::string(name) + ".tanh", tanh());
    spec.then(std::string(name) + ".conv2", convolution(4, 3, {.padding = 1}));
    spec.end_block();
  }
  spec.then("dense", dense(3));
  spec.set_loss(softmax_cross_entropy());
  const std::vector<double> expected = gradient(spec, *reference_ops(DType::kFloat64));
  for (const std::size_t bytes : {std::size_t(8) << 10, std::size_t(1) << 30}) {
    LateOps late(bytes);
    EXPECT_EQ(gradient(spec, late, {.recompute = true}), expected) << bytes << " bytes";
    EXPECT_GT(late.made_late(), 0u);
  }
}

// Several gradients of small layers are deferred at once, one if a layer fills the window, and none
// if layers are far larger.
TEST(GraphApart, TheWindowBoundsWhatIsLate) {
  GraphSpec spec("m", {32});
  for (const char* name : {"a", "b", "c", "d", "e"}) spec.then(name, dense(32));
  spec.set_loss(mean_squared_error());
  constexpr std::size_t kLayer = 2 * 5 * 32 * sizeof(double);  // x and dy of 5 rows
  const auto most_late = [&](std::size_t bytes) {
    LateOps late(bytes);
    gradient(spec, late);
    return late.most_late();
  };
  EXPECT_EQ(most_late(0), 0u);
  EXPECT_EQ(most_late(kLayer / 5), 0u);
  EXPECT_EQ(most_late(kLayer), 1u);
  EXPECT_EQ(most_late(2 * kLayer), 2u);
  EXPECT_EQ(most_late(100 * kLayer), 4u);  // the first layer has no dx
}

}  // namespace graph_apart_test
}  // namespace lockstep::engine
