// SPDX-License-Identifier: MIT
// The built-in layers. A function makes each of them for GraphSpec; layer.h says what a layer is.
// Batches are NHWC. Costs and memory are those of the kernels in engine/ops.
#pragma once
#include <cstddef>
#include <memory>

#include "engine/nn/layer.h"

namespace lockstep::engine {

using LayerPtr = std::shared_ptr<const Layer>;  // shared by all replicas; holds no state

struct DenseOptions {
  bool bias = true;
};
// Maps [inputs] (or any shape, taken flat) to [outputs]. The weight [outputs, inputs] starts by
// Glorot, the bias at zero.
LayerPtr dense(std::size_t outputs, DenseOptions options = {});

struct ConvolutionOptions {
  std::size_t stride = 1;
  std::size_t padding = 0;  // zeros on both sides of both axes
  bool bias = true;
};
// Maps [h, w, c] to [h', w', filters]. The weight [filters, kernel, kernel, c] starts by He, the
// bias at zero.
LayerPtr convolution(std::size_t filters, std::size_t kernel, ConvolutionOptions options = {});

struct PoolOptions {
  std::size_t stride = 0;  // 0: the kernel's size
  std::size_t padding = 0;
};
LayerPtr max_pool(std::size_t kernel, PoolOptions options = {});
LayerPtr average_pool(std::size_t kernel, PoolOptions options = {});  // ignores padding
LayerPtr global_average_pool();                                       // [h, w, c] to [c]

struct BatchNormOptions {
  double momentum = 0.9;      // fraction of moving averages kept per step
  double epsilon = 1e-5;      // added to variances
  bool synchronised = false;  // statistics over all replicas' batches, not its own
};
// Takes any shape whose last extent is the channels. Scale [channels] starts at one, shift
// [channels] at zero. In training, mean and variance of a channel are those of the micro-batch. In
// evaluation they are moving averages, which are statistics (layer.h): "mean" and "variance", the
// unbiased one. A sum with a second input and ReLU behind it run in the same pass. So does a batch
// norm that makes the second input for this sum alone, if both are synchronized or neither is. If
// synchronized, two sums over the replicas meet in each step, and N replicas make the step of one.
// A frozen batch norm (GraphSpec::freeze) keeps scale and shift, and still uses the statistics of
// its batch in training. Ioffe and Szegedy 2015.
LayerPtr batch_norm(BatchNormOptions options = {});

LayerPtr relu();
LayerPtr tanh();
LayerPtr add();      // two inputs of one shape: a residual connection
LayerPtr flatten();  // any shape to [elements]; costs nothing
// Drops units with probability `rate`, 0 <= rate < 1, only in training.
LayerPtr dropout(double rate);

// Takes [count] numbers, from number `first` on, of any shape, taken flat.
LayerPtr columns(std::size_t first, std::size_t count);
LayerPtr concatenate();  // any inputs, taken flat, joined

struct EmbeddingOptions {
  std::size_t first = 0;   // first column of the input with ids
  std::size_t fields = 0;  // number of id columns; 0: all from `first`
  // True: the sum of an example's rows, [columns]; else all of them, [fields * columns].
  bool sum = false;
  double limit = 0.05;  // start values are uniform in +-limit; 0: zeros
};
// Picks rows of a table by ids. The input, taken flat, holds a whole number of 0 .. rows - 1 for
// each field (rows <= 2^24, up to which float32 counts), and each field has `rows` rows of its own.
// The weight [fields * rows, columns] is sparse; id i of field f picks row f * rows + i. Forward
// throws Error(kInvalid) that names layer, example and number for an invalid id. Ids have no
// gradient, so layers below get zeros. Gradients of a row are added in the order of the examples.
// Costs the picked rows, and in backward zeros for the whole table, unless it is compact
// (GraphOptions).
LayerPtr embedding(std::size_t rows, std::size_t columns, EmbeddingOptions options = {});

}  // namespace lockstep::engine
