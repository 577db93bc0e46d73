// SPDX-License-Identifier: MIT
// Matrix products by cuBLASLt, with bias and ReLU in the same kernel. The library is column-major,
// so it gets the transposed problem c' = op(b)' op(a)', whose operands have our layout. The first
// call of a shape and alignment asks the library's heuristic for a kernel, which takes some
// microseconds. Nothing is timed, so every run chooses the same kernel. Later calls queue that
// kernel. Kernels that split a sum must add its parts in float32 and in a fixed order, so results
// are deterministic. ReLU is max(x, 0); the manual does not define it for NaN. Use it on the
// replica's computing thread. Throws Error(kDevice) with the call, the status and the product.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <unordered_map>

#include "engine/cuda/cublas_lt_functions.h"
#include "engine/cuda/memory.h"
#include "engine/cuda/products.h"

namespace lockstep::engine::cuda {

class CublasLt final : public Products {
 public:
  static constexpr std::size_t kWorkspace = std::size_t(32) << 20;  // bytes, shared by all products

  // `tf32`: float32 factors may be rounded to 10 bits of fraction. All arguments must outlive this
  // object.
  CublasLt(const CublasLtFunctions& library, const Context& context, Memory& memory, bool tf32);
  // Requires that all work it queued is done.
  ~CublasLt() override;
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  void run(CudaStream& stream, const Product& product, const void* a, const void* b,
           const void* bias, void* c) override;

 private:
  void run_now(const CudaStream& stream, const Product& product, const void* a, const void* b,
               const void* bias, void* c);
  // Holds a product and the alignments of a, b, bias and c in bytes (powers of two).
  struct Key {
    Product product;
    std::array<std::uint32_t, 4> alignments{};
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  template <class Handle>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;
  using Layout = Owned<cublasLtMatrixLayout_t>;
  using Description = Owned<cublasLtMatmulDesc_t>;
  struct Plan {
    Description description;
    Layout a, b, c;
    cublasLtMatmulAlgo_t kernel{};
    std::size_t workspace = 0;
  };

  Plan plan(const Key& key, const void* bias) const;
  Layout layout(const Product& product, std::size_t rows, std::size_t columns) const;
  Description description(const Product& product) const;
  void choose(Plan& plan, const Key& key) const;
  void check(cublasStatus_t status, const char* call, const Product& product) const;

  const CublasLtFunctions* library_;
  const Context* context_;
  bool tf32_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::unordered_map<Key, Plan, Hash> plans_;
};

}  // namespace lockstep::engine::cuda
