// SPDX-License-Identifier: MIT
#include "test/strategies/observed_device.h"

namespace lockstep::test {
namespace {

using engine::Tensor;
using State = const engine::StepState*;

class ObservedOps : public engine::Ops {
 public:
  ObservedOps(std::unique_ptr<engine::Ops> ops, OnReduce on_reduce)
      : ops_(std::move(ops)), on_reduce_(std::move(on_reduce)) {}
  engine::DType dtype() const override { return ops_->dtype(); }
  std::size_t slice_rows() const override { return ops_->slice_rows(); }
  void dense_forward(State s, const engine::DenseSpec& spec, Tensor x, Tensor w, Tensor b,
                     Tensor y) override {
    ops_->dense_forward(s, spec, x, w, b, y);
  }
  void dense_backward(State s, const engine::DenseSpec& spec, Tensor x, Tensor y, Tensor dy,
                      Tensor w, Tensor dx, Tensor dw, Tensor db, bool accumulate) override {
    ops_->dense_backward(s, spec, x, y, dy, w, dx, dw, db, accumulate);
  }
  void convolution_forward(State s, const engine::ConvolutionSpec& spec, Tensor x, Tensor w,
                           Tensor b, Tensor y) override {
    ops_->convolution_forward(s, spec, x, w, b, y);
  }
  void convolution_backward(State s, const engine::ConvolutionSpec& spec, Tensor x, Tensor y,
                            Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                            bool accumulate) override {
    ops_->convolution_backward(s, spec, x, y, dy, w, dx, dw, db, accumulate);
  }
  std::size_t pool_workspace(const engine::PoolSpec& spec, std::size_t rows) override {
    return ops_->pool_workspace(spec, rows);
  }
  void pool_forward(State s, const engine::PoolSpec& spec, Tensor x, Tensor y,
                    std::byte* workspace) override {
    ops_->pool_forward(s, spec, x, y, workspace);
  }
  void pool_backward(State s, const engine::PoolSpec& spec, Tensor dy, Tensor dx,
                     const std::byte* workspace) override {
    ops_->pool_backward(s, spec, dy, dx, workspace);
  }
  engine::KernelMemory convolution_memory(const engine::ConvolutionSpec& spec,
                                          std::size_t rows) const override {
    return ops_->convolution_memory(spec, rows);
  }
  engine::KernelMemory pooled_convolution_memory(const engine::PooledConvolutionSpec& spec,
                                                 std::size_t rows) const override {
    return ops_->pooled_convolution_memory(spec, rows);
  }
  std::size_t pooled_convolution_workspace(const engine::PooledConvolutionSpec& spec,
                                           std::size_t rows) override {
    return ops_->pooled_convolution_workspace(spec, rows);
  }
  void pooled_convolution_forward(State s, const engine::PooledConvolutionSpec& spec, Tensor x,
                                  Tensor w, Tensor b, Tensor y,
                                  engine::PooledConvolutionMemory memory) override {
    ops_->pooled_convolution_forward(s, spec, x, w, b, y, memory);
  }
  void pooled_convolution_backward(State s, const engine::PooledConvolutionSpec& spec, Tensor x,
                                   Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                   engine::PooledConvolutionMemory memory,
                                   bool accumulate) override {
    ops_->pooled_convolution_backward(s, spec, x, dy, w, dx, dw, db, memory, accumulate);
  }
  void batch_norm_sums(State s, const engine::BatchNormSpec& spec, Tensor x,
                       double* sums) override {
    ops_->batch_norm_sums(s, spec, x, sums);
  }
  void batch_norm_forward(State s, const engine::BatchNormSpec& spec,
                          const engine::BatchNormForward& call) override {
    ops_->batch_norm_forward(s, spec, call);
  }
  void batch_norm_gradient_sums(State s, const engine::BatchNormSpec& spec,
                                const engine::BatchNormBackward& call, Tensor dscale, Tensor dshift,
                                bool accumulate, double* sums) override {
    ops_->batch_norm_gradient_sums(s, spec, call, dscale, dshift, accumulate, sums);
  }
  void batch_norm_backward(State s, const engine::BatchNormSpec& spec,
                           const engine::BatchNormBackward& call) override {
    ops_->batch_norm_backward(s, spec, call);
  }
  void relu(State s, Tensor x, Tensor y) override { ops_->relu(s, x, y); }
  void relu_gradient(State s, Tensor y, Tensor dy, Tensor dx) override {
    ops_->relu_gradient(s, y, dy, dx);
  }
  void tanh(State s, Tensor x, Tensor y) override { ops_->tanh(s, x, y); }
  void tanh_gradient(State s, Tensor y, Tensor dy, Tensor dx) override {
    ops_->tanh_gradient(s, y, dy, dx);
  }
  void add(State s, Tensor a, Tensor b, Tensor y) override { ops_->add(s, a, b, y); }
  void copy(State s, Tensor x, Tensor y) override { ops_->copy(s, x, y); }
  void dropout(State s, const engine::DropoutSpec& spec, Tensor x, Tensor y) override {
    ops_->dropout(s, spec, x, y);
  }
  void copy_columns(State s, Tensor x, std::size_t from, Tensor y, std::size_t to,
                    std::size_t count) override {
    ops_->copy_columns(s, x, from, y, to, count);
  }
  void clear(State s, Tensor y) override { ops_->clear(s, y); }
  void embedding_rows(State s, const engine::RowSource& source, Tensor x, std::string_view layer,
                      std::uint32_t* places) override {
    ops_->embedding_rows(s, source, x, layer, places);
  }
  void embedding_forward(State s, const engine::EmbeddingSpec& spec, const std::uint32_t* places,
                         Tensor w, Tensor y) override {
    ops_->embedding_forward(s, spec, places, w, y);
  }
  void embedding_backward(State s, const engine::EmbeddingSpec& spec, const std::uint32_t* places,
                          Tensor dy, Tensor dw, bool accumulate) override {
    ops_->embedding_backward(s, spec, places, dy, dw, accumulate);
  }
  void softmax_cross_entropy(State s, double smoothing, Tensor logits, Tensor target,
                             Tensor dlogits, Tensor losses, Tensor correct) override {
    ops_->softmax_cross_entropy(s, smoothing, logits, target, dlogits, losses, correct);
  }
  void squared_error(State s, Tensor y, Tensor target, Tensor dy, Tensor losses) override {
    ops_->squared_error(s, y, target, dy, losses);
  }
  void softmax(State s, Tensor logits, Tensor probabilities) override {
    ops_->softmax(s, logits, probabilities);
  }
  double batch_sum(State s, Tensor rows) override { return ops_->batch_sum(s, rows); }
  void load(const float* from, Tensor x) override { ops_->load(from, x); }
  std::uint64_t checksum(const std::byte* data, std::size_t bytes,
                         std::size_t offset) const override {
    return ops_->checksum(data, bytes, offset);
  }
  void reduce(const engine::ReduceArguments& arguments) const override {
    on_reduce_(arguments);
    ops_->reduce(arguments);
  }

 private:
  std::unique_ptr<engine::Ops> ops_;
  OnReduce on_reduce_;
};

}  // namespace

std::unique_ptr<engine::Ops> observed(std::unique_ptr<engine::Ops> ops, OnReduce on_reduce) {
  return std::make_unique<ObservedOps>(std::move(ops), std::move(on_reduce));
}

}  // namespace lockstep::test
