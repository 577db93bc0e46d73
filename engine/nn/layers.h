// SPDX-License-Identifier: MIT
// The layers there are. Each is made by a function and given to GraphSpec; see layer.h for what a
// layer is. Batches are NHWC. Costs and memory are those of the kernels in engine/ops.
#pragma once
#include <cstddef>
#include <memory>

#include "engine/nn/layer.h"

namespace lockstep::engine {

using LayerPtr = std::shared_ptr<const Layer>;  // shared by all replicas; holds no state

struct DenseOptions {
  bool bias = true;
};
// [inputs] (or any shape, taken flat) to [outputs]. Weight [outputs, inputs], Glorot; bias zero.
LayerPtr dense(std::size_t outputs, DenseOptions options = {});

struct ConvolutionOptions {
  std::size_t stride = 1;
  std::size_t padding = 0;  // zeros on both sides of both axes
  bool bias = true;
};
// [h, w, c] to [h', w', filters]. Weight [filters, kernel, kernel, c], He; bias zero.
LayerPtr convolution(std::size_t filters, std::size_t kernel, ConvolutionOptions options = {});

struct PoolOptions {
  std::size_t stride = 0;  // 0: the kernel's size
  std::size_t padding = 0;
};
LayerPtr max_pool(std::size_t kernel, PoolOptions options = {});
LayerPtr average_pool(std::size_t kernel, PoolOptions options = {});  // leaves padding out
LayerPtr global_average_pool();                                       // [h, w, c] to [c]

struct BatchNormOptions {
  double momentum = 0.9;      // of the moving averages: the part that is kept in a step
  double epsilon = 1e-5;      // added to variances
  bool synchronised = false;  // statistics of the batches of all replicas together, not of its own
};
// Any shape, its last extent the channels. Scale [channels], one; shift [channels], zero. In
// training mean and variance of a channel are those of the micro-batch; in evaluation moving
// averages, which are statistics (layer.h): "mean" and "variance", the unbiased one. A sum with a
// second input and ReLU behind it run in the same pass, and so does a batch norm that makes the
// second input for this sum alone, if both are synchronised or neither is. Synchronised, two sums
// over the replicas meet in each step, and N replicas make the step of one. Ioffe and Szegedy 2015.
LayerPtr batch_norm(BatchNormOptions options = {});

LayerPtr relu();
LayerPtr tanh();
LayerPtr add();                 // two inputs of one shape: a residual connection
LayerPtr flatten();             // any shape to [elements]; costs nothing
LayerPtr dropout(double rate);  // of units dropped, 0 <= rate < 1; only in training

// Of any shape, taken flat: [count] of its numbers, from number `first` on.
LayerPtr columns(std::size_t first, std::size_t count);
LayerPtr concatenate();  // any inputs, taken flat, one behind the other

struct EmbeddingOptions {
  std::size_t first = 0;   // of the columns of the input that hold ids, ...
  std::size_t fields = 0;  // ... and how many do; 0: all from `first` on
  bool sum = false;        // of the rows that an example picks: [columns]; else [fields * columns]
  double limit = 0.05;     // start values are uniform in +-limit; 0: zeros
};
// Rows of a table, picked by ids: the input, taken flat, holds a whole number of 0 .. rows - 1 for
// each field (rows <= 2^24: float32 counts so far), and each field has `rows` rows of its own.
// Weight [fields * rows, columns], sparse; id i of field f picks row f * rows + i. Forward throws
// Error(kInvalid) that names layer, example and number where one is no id. Ids have no gradient:
// what lies below gets zeros. Gradients of a row are added in the order of the examples. Costs the
// rows picked, and in backward zeros for the whole table, unless it is compact (GraphOptions).
LayerPtr embedding(std::size_t rows, std::size_t columns, EmbeddingOptions options = {});

}  // namespace lockstep::engine
