// SPDX-License-Identifier: MIT
// Arguments of elementwise kernels over the rows in use of batches of the element type. Addresses
// are GPU addresses; `columns` are the elements of a row. Outputs may overwrite the inputs. Any
// grid gives the same bits. Accesses have 16 bytes if all addresses allow it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// Computes y = 0 if x < 0, else x.
struct ReluForward {
  static constexpr const char* kName = "relu_forward";
  const StepState* state;
  const void* x;
  void* y;
  std::size_t columns;
};

// Computes dx = dy if y > 0, else 0.
struct ReluGradient {
  static constexpr const char* kName = "relu_gradient";
  const StepState* state;
  const void* y;
  const void* dy;
  void* dx;
  std::size_t columns;
};

// Computes y = tanh(x).
struct TanhForward {
  static constexpr const char* kName = "tanh_forward";
  const StepState* state;
  const void* x;
  void* y;
  std::size_t columns;
};

// Computes dx = dy (1 - y^2).
struct TanhGradient {
  static constexpr const char* kName = "tanh_gradient";
  const StepState* state;
  const void* y;
  const void* dy;
  void* dx;
  std::size_t columns;
};

// Computes y = a + b.
struct Add {
  static constexpr const char* kName = "add";
  const StepState* state;
  const void* a;
  const void* b;
  void* y;
  std::size_t columns;
};

// Computes y = x / (1 - rate) for each kept unit (engine/ops/definitions.h selects them), else 0. A
// thread processes four units.
struct Dropout {
  static constexpr const char* kName = "dropout";
  const StepState* state;
  const void* x;
  void* y;
  std::size_t columns;
  double rate;
  std::uint64_t key;
};

// Converts a whole float32 array to the element type.
struct Convert {
  static constexpr const char* kName = "convert";
  const float* from;
  void* to;
  std::size_t count;
};

// Copies a batch that arrived on the GPU to its destinations. Inputs are converted like Convert;
// arrays of 4-byte words (targets, IDs, the step state) are copied.
struct TakeBatch {
  static constexpr const char* kName = "take_batch";
  struct Words {
    const std::uint32_t* from;
    std::uint32_t* to;
    std::size_t count;
  };
  Convert inputs;
  std::array<Words, 3> words;
};

using PointwiseKernels = std::tuple<ReluForward, ReluGradient, TanhForward, TanhGradient, Add,
                                    Dropout, Convert, TakeBatch>;

}  // namespace lockstep::engine::cuda
