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

LayerPtr relu();
LayerPtr tanh();
LayerPtr add();                 // two inputs of one shape: a residual connection
LayerPtr flatten();             // any shape to [elements]; costs nothing
LayerPtr dropout(double rate);  // of units dropped, 0 <= rate < 1; only in training

}  // namespace lockstep::engine
