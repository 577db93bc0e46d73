// SPDX-License-Identifier: MIT
// A cuBLASLt for tests: it notes what it is asked for, and computes float32 products at once, by
// the library's own rules: matrices lie by columns, and a bias is added to each row. Its functions
// are plain functions, as the real ones are, so they find the fake by a pointer of the thread: one
// fake a thread at a time.
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
  // A layout, a description or a preference; what a description was made with, and the attributes.
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
  std::size_t objects() const { return objects_.size(); }  // that are there, handles included

  std::vector<Object> asked;                      // the preference of each question for a kernel
  std::vector<Matmul> computed;                   // in their order
  int kernels = 1;                                // that a question finds
  cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;  // of products

  // For its functions.
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
