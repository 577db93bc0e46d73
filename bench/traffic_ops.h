// SPDX-License-Identifier: MIT
// Kernels that compute nothing and count. Each call counts the least bytes to move and operations
// to make, with kernels divided as on a GPU (engine/cuda). A graph built on these ops that runs a
// step yields the cost of each of its layers, with all fusions.
//
// The bytes are those that a pass over memory reads and writes, each operand once. A batch counts
// `rows` rows, whatever rows the graph was made with (one suffices), and parameters count as they
// are. Workspaces and partial sums of libraries between two halves of a call do not count, nor do a
// few numbers per channel. A product and a sum are two operations; only matrix products and
// convolutions count any.
//
// One thread. Memory is the host's, and stays unchanged.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/ops.h"

namespace lockstep::bench {

// Holds the counts of one kernel.
struct Traffic {
  std::string kernel = {};
  double bytes = 0, operations = 0;
};

class TrafficOps final : public engine::Ops {
 public:
  TrafficOps(engine::DType dtype, std::size_t rows) : dtype_(dtype), rows_(rows) {}
  // Returns the kernels since the last call of this.
  std::vector<Traffic> take() { return std::exchange(calls_, {}); }

  engine::DType dtype() const override { return dtype_; }
  bool adds_gradients() const override { return true; }  // as CudaOps
  void dense_forward(const engine::StepState*, const engine::DenseSpec& spec, engine::Tensor x,
                     engine::Tensor w, engine::Tensor b, engine::Tensor y) override;
  void dense_backward(const engine::StepState*, const engine::DenseSpec& spec, engine::Tensor x,
                      engine::Tensor y, engine::Tensor dy, engine::Tensor w, engine::Tensor dx,
                      engine::Tensor dw, engine::Tensor db, bool accumulate) override;
  void convolution_forward(const engine::StepState*, const engine::ConvolutionSpec& spec,
                           engine::Tensor x, engine::Tensor w, engine::Tensor b,
                           engine::Tensor y) override;
  void convolution_backward(const engine::StepState*, const engine::ConvolutionSpec& spec,
                            engine::Tensor x, engine::Tensor y, engine::Tensor dy, engine::Tensor w,
                            engine::Tensor dx, engine::Tensor dw, engine::Tensor db,
                            bool accumulate) override;
  std::size_t pool_workspace(const engine::PoolSpec& spec, std::size_t rows) override;
  void pool_forward(const engine::StepState*, const engine::PoolSpec& spec, engine::Tensor x,
                    engine::Tensor y, std::byte* workspace) override;
  void pool_backward(const engine::StepState*, const engine::PoolSpec& spec, engine::Tensor dy,
                     engine::Tensor dx, const std::byte* workspace) override;
  void batch_norm_sums(const engine::StepState*, const engine::BatchNormSpec& spec,
                       engine::Tensor x, double* sums) override;
  void batch_norm_forward(const engine::StepState*, const engine::BatchNormSpec& spec,
                          const engine::BatchNormForward& call) override;
  void batch_norm_gradient_sums(const engine::StepState*, const engine::BatchNormSpec& spec,
                                const engine::BatchNormBackward& call, engine::Tensor dscale,
                                engine::Tensor dshift, bool accumulate, double* sums) override;
  void batch_norm_backward(const engine::StepState*, const engine::BatchNormSpec& spec,
                           const engine::BatchNormBackward& call) override;
  void batch_norm_pair_gradient_sums(
      const engine::StepState*, const engine::BatchNormSpec& spec,
      const engine::BatchNormPair& pair, bool accumulate,
      const std::array<engine::BatchNormGradients, 2>& results) override;
  void batch_norm_pair_backward(const engine::StepState*, const engine::BatchNormSpec& spec,
                                const engine::BatchNormPair& pair) override;
  void batch_norm_moments(const engine::BatchNormSpec&, const engine::BatchNormMoments&) override {}
  void batch_norm_fixed_moments(const engine::BatchNormSpec&, const double*, double*) override {}
  void relu(const engine::StepState*, engine::Tensor x, engine::Tensor y) override;
  void relu_gradient(const engine::StepState*, engine::Tensor y, engine::Tensor dy,
                     engine::Tensor dx) override;
  void tanh(const engine::StepState*, engine::Tensor x, engine::Tensor y) override;
  void tanh_gradient(const engine::StepState*, engine::Tensor y, engine::Tensor dy,
                     engine::Tensor dx) override;
  void add(const engine::StepState*, engine::Tensor a, engine::Tensor b, engine::Tensor y) override;
  void copy(const engine::StepState*, engine::Tensor x, engine::Tensor y) override;
  void copy_bytes(const std::byte*, std::byte*, std::size_t) override {}  // not counted
  void dropout(const engine::StepState*, const engine::DropoutSpec&, engine::Tensor x,
               engine::Tensor y) override;
  void copy_columns(const engine::StepState*, engine::Tensor x, std::size_t from, engine::Tensor y,
                    std::size_t to, std::size_t count) override;
  void clear(const engine::StepState*, engine::Tensor y) override;
  void embedding_rows(const engine::StepState*, const engine::RowSource& source, engine::Tensor x,
                      std::string_view layer, std::uint32_t* places) override;
  void embedding_forward(const engine::StepState*, const engine::EmbeddingSpec& spec,
                         const std::uint32_t* places, engine::Tensor w, engine::Tensor y) override;
  void embedding_backward(const engine::StepState*, const engine::EmbeddingSpec& spec,
                          const std::uint32_t* places, engine::Tensor dy, engine::Tensor dw,
                          bool accumulate) override;
  void softmax_cross_entropy(const engine::StepState*, double smoothing, engine::Tensor logits,
                             engine::Tensor target, engine::Tensor dlogits, engine::Tensor losses,
                             engine::Tensor correct) override;
  void squared_error(const engine::StepState*, engine::Tensor y, engine::Tensor target,
                     engine::Tensor dy, engine::Tensor losses) override;
  void softmax(const engine::StepState*, engine::Tensor logits,
               engine::Tensor probabilities) override;
  double batch_sum(const engine::StepState*, engine::Tensor) override { return 0; }
  void load(const float* from, engine::Tensor x) override;
  std::uint64_t checksum(const std::byte*, std::size_t, std::size_t) const override { return 0; }
  void reduce(const engine::ReduceArguments&) const override {}

 private:
  // Returns the bytes of a batch in its own dtype; 0 without a tensor.
  double batch(engine::Tensor tensor) const;
  static double whole(engine::Tensor tensor);  // bytes of a parameter
  // Returns the bytes of a gradient: it is written, and read before if it is accumulated.
  static double gradient(engine::Tensor parameter, bool accumulate);
  void count(std::string_view kernel, double bytes, double operations = 0);
  void bias_gradient(engine::Activation activation, engine::Tensor y, engine::Tensor dy,
                     engine::Tensor db, bool accumulate);

  engine::DType dtype_;
  std::size_t rows_;
  std::vector<Traffic> calls_;
};

}  // namespace lockstep::bench
