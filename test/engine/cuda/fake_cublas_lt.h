// SPDX-License-Identifier: MIT
// A cuBLASLt for tests. It records requests and computes float32 products at once, by the library's
// rules: matrices are column-major, and a bias is added to each row. Its functions are plain
// functions, like the real ones, so they find the fake by a thread-local pointer: one fake per
// thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/cuda/cublas_lt_functions.h"

namespace lockstep::engine::cuda {

class FakeCublasLt {
 public:
  // Describes a layout, a description, or a preference, with its creation arguments and attributes.
  struct Object {
    cudaDataType_t type = CUDA_R_32F;
    std::uint64_t rows = 0, columns = 0;
    std::int64_t leading = 0;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    std::map<int, std::vector<std::byte>> attributes{};
  };
  struct Matmul {
    cublasComputeType_t compute;
    cudaDataType_t type;
    const void* workspace;
    std::size_t workspace_bytes;
    cudaStream_t stream;
  };

  FakeCublasLt();
  ~FakeCublasLt();
  FakeCublasLt(const FakeCublasLt&) = delete;
  FakeCublasLt& operator=(const FakeCublasLt&) = delete;

  CublasLtFunctions functions() const;
  std::size_t objects() const { return objects_.size(); }  // live, including handles

  std::vector<Object> asked;                      // the preference of each heuristic query
  std::vector<Matmul> computed;                   // in order
  int kernels = 1;                                // that a query finds
  cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;  // of products

  // The library's functions call these.
  static FakeCublasLt& current();
  Object* make(Object object);
  void drop(const void* object);
  cublasStatus_t multiply(const Object& description, float alpha, const void* a,
                          const Object& a_layout, const void* b, const Object& b_layout, float beta,
                          const void* c, void* d, const Object& d_layout);

 private:
  std::map<const void*, std::unique_ptr<Object>> objects_;
};

}  // namespace lockstep::engine::cuda
