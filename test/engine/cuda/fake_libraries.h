// SPDX-License-Identifier: MIT
// What cuBLASLt and cuDNN do, as plain loops, for tests without a GPU. They are kernels of the fake
// GPU, so they run as late and in as odd an order as all its work, and are recorded into graphs.
// The fake GPU must have them: FakeGpuOptions{.kernels = kernels_with_libraries}. Sums are float32,
// in the order of the operands; what is computed is rounded once, when it is stored. A sum that is
// added to is first read. Threads and errors: the ports.
#pragma once
#include <span>

#include "engine/cuda/convolutions.h"
#include "engine/cuda/kernel_module.h"
#include "engine/cuda/products.h"
#include "test/engine/cuda/emulated_kernels.h"

namespace lockstep::engine::cuda {

// The kernels of the two classes below, and those together with lockstep's own.
std::span<const EmulatedKernel> library_kernels(DType dtype);
std::span<const EmulatedKernel> kernels_with_libraries(DType dtype);

class FakeProducts final : public Products {
 public:
  // `kernels`, of the products' element type, must outlive this.
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
