// SPDX-License-Identifier: MIT
// A capture of one step. Every call of a kernel, a hook or a reduction is executed and recorded
// with its arguments, as in a CUDA graph. The step can then be replayed without the code that made
// it.
#pragma once
#include <functional>
#include <vector>

#include "engine/nn/layer.h"
#include "engine/ops/ops.h"

namespace lockstep::test {

class Notebook {
 public:
  void note(std::function<void()> command) {
    command();
    commands_.push_back(std::move(command));
  }
  void replay() const {
    for (const auto& command : commands_) command();
  }
  bool empty() const { return commands_.empty(); }

 private:
  std::vector<std::function<void()>> commands_;
};

// Records the calls that it forwards. Results that return to the host are not part of a capture.
class RecordingOps : public engine::Ops {
  using State = const engine::StepState*;
  using Tensor = engine::Tensor;

 public:
  RecordingOps(engine::Ops& ops, Notebook& notebook) : ops_(ops), notebook_(notebook) {}
  engine::DType dtype() const override { return ops_.dtype(); }
  void copy_bytes(const std::byte* from, std::byte* to, std::size_t bytes) override {
    notebook_.note([=, this] { ops_.copy_bytes(from, to, bytes); });
  }
  void dense_forward(State s, const engine::DenseSpec& spec, Tensor x, Tensor w, Tensor b,
                     Tensor y) override {
    notebook_.note([=, this] { ops_.dense_forward(s, spec, x, w, b, y); });
  }
  void dense_backward(State s, const engine::DenseSpec& spec, Tensor x, Tensor y, Tensor dy,
                      Tensor w, Tensor dx, Tensor dw, Tensor db, bool accumulate) override {
    notebook_.note(
        [=, this] { ops_.dense_backward(s, spec, x, y, dy, w, dx, dw, db, accumulate); });
  }
  void convolution_forward(State s, const engine::ConvolutionSpec& spec, Tensor x, Tensor w,
                           Tensor b, Tensor y) override {
    notebook_.note([=, this] { ops_.convolution_forward(s, spec, x, w, b, y); });
  }
  void convolution_backward(State s, const engine::ConvolutionSpec& spec, Tensor x, Tensor y,
                            Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                            bool accumulate) override {
    notebook_.note(
        [=, this] { ops_.convolution_backward(s, spec, x, y, dy, w, dx, dw, db, accumulate); });
  }
  std::size_t pool_workspace(const engine::PoolSpec& spec, std::size_t rows) override {
    return ops_.pool_workspace(spec, rows);
  }
  void pool_forward(State s, const engine::PoolSpec& spec, Tensor x, Tensor y,
                    std::byte* workspace) override {
    notebook_.note([=, this] { ops_.pool_forward(s, spec, x, y, workspace); });
  }
  void pool_backward(State s, const engine::PoolSpec& spec, Tensor dy, Tensor dx,
                     const std::byte* workspace) override {
    notebook_.note([=, this] { ops_.pool_backward(s, spec, dy, dx, workspace); });
  }
  void batch_norm_sums(State s, const engine::BatchNormSpec& spec, Tensor x,
                       double* sums) override {
    notebook_.note([=, this] { ops_.batch_norm_sums(s, spec, x, sums); });
  }
  void batch_norm_forward(State s, const engine::BatchNormSpec& spec,
                          const engine::BatchNormForward& call) override {
    notebook_.note([=, this] { ops_.batch_norm_forward(s, spec, call); });
  }
  void batch_norm_gradient_sums(State s, const engine::BatchNormSpec& spec,
                                const engine::BatchNormBackward& call, Tensor dscale, Tensor dshift,
                                bool accumulate, double* sums) override {
    notebook_.note([=, this] {
      ops_.batch_norm_gradient_sums(s, spec, call, dscale, dshift, accumulate, sums);
    });
  }
  void batch_norm_backward(State s, const engine::BatchNormSpec& spec,
                           const engine::BatchNormBackward& call) override {
    notebook_.note([=, this] { ops_.batch_norm_backward(s, spec, call); });
  }
  void relu(State s, Tensor x, Tensor y) override {
    notebook_.note([=, this] { ops_.relu(s, x, y); });
  }
  void relu_gradient(State s, Tensor y, Tensor dy, Tensor dx) override {
    notebook_.note([=, this] { ops_.relu_gradient(s, y, dy, dx); });
  }
  void tanh(State s, Tensor x, Tensor y) override {
    notebook_.note([=, this] { ops_.tanh(s, x, y); });
  }
  void tanh_gradient(State s, Tensor y, Tensor dy, Tensor dx) override {
    notebook_.note([=, this] { ops_.tanh_gradient(s, y, dy, dx); });
  }
  void add(State s, Tensor a, Tensor b, Tensor y) override {
    notebook_.note([=, this] { ops_.add(s, a, b, y); });
  }
  void dropout(State s, const engine::DropoutSpec& spec, Tensor x, Tensor y) override {
    notebook_.note([=, this] { ops_.dropout(s, spec, x, y); });
  }
  void copy_columns(State s, Tensor x, std::size_t from, Tensor y, std::size_t to,
                    std::size_t count) override {
    notebook_.note([=, this] { ops_.copy_columns(s, x, from, y, to, count); });
  }
  void clear(State s, Tensor y) override {
    notebook_.note([=, this] { ops_.clear(s, y); });
  }
  void embedding_rows(State s, const engine::RowSource& source, Tensor x, std::string_view layer,
                      std::uint32_t* places) override {
    notebook_.note([=, this] { ops_.embedding_rows(s, source, x, layer, places); });
  }
  void embedding_forward(State s, const engine::EmbeddingSpec& spec, const std::uint32_t* places,
                         Tensor w, Tensor y) override {
    notebook_.note([=, this] { ops_.embedding_forward(s, spec, places, w, y); });
  }
  void embedding_backward(State s, const engine::EmbeddingSpec& spec, const std::uint32_t* places,
                          Tensor dy, Tensor dw, bool accumulate) override {
    notebook_.note([=, this] { ops_.embedding_backward(s, spec, places, dy, dw, accumulate); });
  }
  void softmax_cross_entropy(State s, double smoothing, Tensor logits, Tensor target,
                             Tensor dlogits, Tensor losses, Tensor correct) override {
    notebook_.note([=, this] {
      ops_.softmax_cross_entropy(s, smoothing, logits, target, dlogits, losses, correct);
    });
  }
  void squared_error(State s, Tensor y, Tensor target, Tensor dy, Tensor losses) override {
    notebook_.note([=, this] { ops_.squared_error(s, y, target, dy, losses); });
  }
  void softmax(State s, Tensor logits, Tensor probabilities) override {
    notebook_.note([=, this] { ops_.softmax(s, logits, probabilities); });
  }
  double batch_sum(State s, Tensor rows) override { return ops_.batch_sum(s, rows); }
  void load(const float* from, Tensor x) override { ops_.load(from, x); }
  std::uint64_t checksum(const std::byte* data, std::size_t bytes,
                         std::size_t offset) const override {
    return ops_.checksum(data, bytes, offset);
  }
  void reduce(const engine::ReduceArguments& arguments) const override { ops_.reduce(arguments); }

 private:
  engine::Ops& ops_;
  Notebook& notebook_;
};

class RecordingContext : public engine::Context {
 public:
  RecordingContext(engine::Context& context, RecordingOps& recording, Notebook& notebook)
      : Context(recording), context_(context), notebook_(notebook) {
    state = context.state;
    training = context.training;
    seed = context.seed;
  }
  std::byte* exchange(int point) override { return context_.exchange(point); }
  void reduce(int point) override { context_.reduce(point); }
  Notebook& notebook() { return notebook_; }

 private:
  engine::Context& context_;
  Notebook& notebook_;
};

// Performs work of test layers, which compute without kernels, and records it during a capture.
inline void perform(engine::Context& context, std::function<void()> work) {
  if (auto* recording = dynamic_cast<RecordingContext*>(&context)) {
    recording->notebook().note(std::move(work));
  } else {
    work();
  }
}

}  // namespace lockstep::test
