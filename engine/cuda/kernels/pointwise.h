// SPDX-License-Identifier: MIT
// Arguments of kernels that go element by element over the rows in use of batches of the element
// type. Addresses are the GPU's; `columns` are the elements of a row. Outputs may be the inputs'
// memory. Any grid gives the same bits; accesses are of 16 bytes where all addresses allow it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "engine/ops/step_state.h"

namespace lockstep::engine::cuda {

// y = x, or 0 where x < 0.
struct ReluForward {
  static constexpr const char* kName = "relu_forward";
  const StepState* state;
  const void* x;
  void* y;
  std::size_t columns;
};

// dx = dy where y > 0, else 0.
struct ReluGradient {
  static constexpr const char* kName = "relu_gradient";
  const StepState* state;
  const void* y;
  const void* dy;
  void* dx;
  std::size_t columns;
};

// y = tanh(x).
struct TanhForward {
  static constexpr const char* kName = "tanh_forward";
  const StepState* state;
  const void* x;
  void* y;
  std::size_t columns;
};

// dx = dy (1 - y^2).
struct TanhGradient {
  static constexpr const char* kName = "tanh_gradient";
  const StepState* state;
  const void* y;
  const void* dy;
  void* dx;
  std::size_t columns;
};

// y = a + b.
struct Add {
  static constexpr const char* kName = "add";
  const StepState* state;
  const void* a;
  const void* b;
  void* y;
  std::size_t columns;
};

// y = x / (1 - rate) where a unit is kept, else 0 (engine/ops/definitions.h has which). A thread
// takes four units.
struct Dropout {
  static constexpr const char* kName = "dropout";
  const StepState* state;
  const void* x;
  void* y;
  std::size_t columns;
  double rate;
  std::uint64_t key;
};

// Of a whole array: float32 to the element type.
struct Convert {
  static constexpr const char* kName = "convert";
  const float* from;
  void* to;
  std::size_t count;
};

// A batch that has come to the GPU goes to where kernels read it: its inputs as Convert does, and
// arrays of words of 4 bytes (targets, ids, the words of the step) as they are.
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
