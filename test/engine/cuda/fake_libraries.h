// SPDX-License-Identifier: MIT
// Plain loops in place of cuBLASLt and cuDNN, for tests without a GPU. They are kernels of the fake
// GPU: they run as late and in as random an order as its other work, and graphs can capture them.
// The fake GPU must have them: FakeGpuOptions{.kernels = kernels_with_libraries}. Sums are float32,
// in the order of the operands, starting with the previous value if accumulated. Results are
// rounded once, when stored. Threads and errors: see the ports.
#pragma once
#include <span>

#include "engine/cuda/convolutions.h"
#include "engine/cuda/kernel_module.h"
#include "engine/cuda/products.h"
#include "test/engine/cuda/emulated_kernels.h"

namespace lockstep::engine::cuda {

// Returns the kernels of the two classes below; kernels_with_libraries adds lockstep's.
std::span<const EmulatedKernel> library_kernels(DType dtype);
std::span<const EmulatedKernel> kernels_with_libraries(DType dtype);

class FakeProducts final : public Products {
 public:
  // `kernels`, of the products' element type, must outlive this object.
  explicit FakeProducts(const KernelModule& kernels) : kernels_(&kernels) {}
  void run(CudaStream& stream, const Product& product, const void* a, const void* b,
           const void* bias, void* c) override;

 private:
  const KernelModule* kernels_;
};

class FakeConvolutions final : public Convolutions {
 public:
  explicit FakeConvolutions(const KernelModule& kernels) : kernels_(&kernels) {}
  void run(CudaStream& stream, const Convolution& call, const void* first, const void* second,
           const void* bias, void* target) override;

 private:
  const KernelModule* kernels_;
};

}  // namespace lockstep::engine::cuda
