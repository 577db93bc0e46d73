// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_cublas_lt.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

using LtObject = FakeCublasLt::Object;

thread_local FakeCublasLt* current_cublas_lt = nullptr;

template <class Handle>
LtObject& object_of(Handle handle) {
  return *reinterpret_cast<LtObject*>(handle);
}

template <class Handle>
cublasStatus_t make(Handle* handle, LtObject object) {
  *handle = reinterpret_cast<Handle>(FakeCublasLt::current().make(std::move(object)));
  return CUBLAS_STATUS_SUCCESS;
}

template <class Handle>
cublasStatus_t drop(Handle handle) {
  FakeCublasLt::current().drop(handle);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Handle>
cublasStatus_t set(Handle handle, int attribute, const void* value, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(value);
  object_of(handle).attributes[attribute] = {from, from + bytes};
  return CUBLAS_STATUS_SUCCESS;
}

template <class Value>
Value get(const LtObject& object, int attribute, Value otherwise) {
  const auto found = object.attributes.find(attribute);
  if (found == object.attributes.end()) return otherwise;
  invariant(found->second.size() == sizeof(Value), "an attribute has the size of its type");
  std::memcpy(&otherwise, found->second.data(), sizeof(Value));
  return otherwise;
}

// Gives access to element (row, column) of op(matrix), and holds the extents of op(matrix).
struct Operand {
  const float* data;
  std::int64_t leading;
  bool transposed;
  std::uint64_t rows, columns;
  Operand(const void* address, const LtObject& layout, int operation)
      : data(static_cast<const float*>(address)),
        leading(layout.leading),
        transposed(operation == CUBLAS_OP_T),
        rows(transposed ? layout.columns : layout.rows),
        columns(transposed ? layout.rows : layout.columns) {}
  float at(std::uint64_t row, std::uint64_t column) const {
    if (transposed) std::swap(row, column);
    return data[column * std::uint64_t(leading) + row];
  }
};

}  // namespace

FakeCublasLt::FakeCublasLt() {
  invariant(current_cublas_lt == nullptr, "one fake cuBLASLt at a time");
  current_cublas_lt = this;
}

FakeCublasLt::~FakeCublasLt() {
  current_cublas_lt = nullptr;
}

FakeCublasLt& FakeCublasLt::current() {
  return *current_cublas_lt;
}

LtObject* FakeCublasLt::make(LtObject object) {
  auto made = std::make_unique<LtObject>(std::move(object));
  LtObject* const address = made.get();
  objects_.emplace(address, std::move(made));
  return address;
}

void FakeCublasLt::drop(const void* object) {
  invariant(objects_.erase(object) == 1, "what is destroyed was made, and is destroyed once");
}

cublasStatus_t FakeCublasLt::multiply(const LtObject& description, float alpha, const void* a,
                                      const LtObject& a_layout, const void* b,
                                      const LtObject& b_layout, float beta, const void* c, void* d,
                                      const LtObject& d_layout) {
  if (answer != CUBLAS_STATUS_SUCCESS) return answer;
  if (d_layout.type != CUDA_R_32F) return answer;
  const Operand left(a, a_layout, get(description, CUBLASLT_MATMUL_DESC_TRANSA, int(CUBLAS_OP_N)));
  const Operand right(b, b_layout, get(description, CUBLASLT_MATMUL_DESC_TRANSB, int(CUBLAS_OP_N)));
  const bool fits =
      left.columns == right.rows && left.rows == d_layout.rows && right.columns == d_layout.columns;
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  const auto epilogue = get(description, CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t(1));
  const float* const bias =
      get(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const float*>(nullptr));
  for (std::uint64_t column = 0; column < d_layout.columns; ++column) {
    for (std::uint64_t row = 0; row < d_layout.rows; ++row) {
      float sum = 0;
      for (std::uint64_t k = 0; k < left.columns; ++k) sum += left.at(row, k) * right.at(k, column);
      const std::uint64_t place = column * std::uint64_t(d_layout.leading) + row;
      sum *= alpha;
      if (beta != 0) sum += beta * static_cast<const float*>(c)[place];
      if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) sum += bias[row];
      if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0 && sum < 0) sum = 0;
      static_cast<float*>(d)[place] = sum;
    }
  }
  return answer;
}

CublasLtFunctions FakeCublasLt::functions() const {
  CublasLtFunctions f;
  f.version = [] { return std::size_t(130102); };
  f.get_status_name = [](cublasStatus_t) { return "CUBLAS_STATUS_OF_A_FAKE"; };
  f.get_status_string = [](cublasStatus_t) { return "the fake says no"; };
  f.create = [](cublasLtHandle_t* handle) { return cuda::make(handle, {}); };
  f.destroy = [](cublasLtHandle_t handle) { return cuda::drop(handle); };
  f.layout_create = [](cublasLtMatrixLayout_t* handle, cudaDataType type, std::uint64_t rows,
                       std::uint64_t columns, std::int64_t leading) {
    return cuda::make(handle, {.type = type, .rows = rows, .columns = columns, .leading = leading});
  };
  f.layout_destroy = [](cublasLtMatrixLayout_t handle) { return cuda::drop(handle); };
  f.desc_create = [](cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                     cudaDataType_t type) {
    return cuda::make(handle, {.type = type, .compute = compute});
  };
  f.desc_destroy = [](cublasLtMatmulDesc_t handle) { return cuda::drop(handle); };
  f.desc_set_attribute = [](cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                            const void* value,
                            std::size_t bytes) { return set(handle, attribute, value, bytes); };
  f.preference_create = [](cublasLtMatmulPreference_t* handle) { return cuda::make(handle, {}); };
  f.preference_destroy = [](cublasLtMatmulPreference_t handle) { return cuda::drop(handle); };
  f.preference_set_attribute =
      [](cublasLtMatmulPreference_t handle, cublasLtMatmulPreferenceAttributes_t attribute,
         const void* value, std::size_t bytes) { return set(handle, attribute, value, bytes); };
  f.get_heuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                       cublasLtMatmulPreference_t preference, int most,
                       cublasLtMatmulHeuristicResult_t* results, int* found) {
    FakeCublasLt& fake = current();
    fake.asked.push_back(object_of(preference));
    *found = std::min(most, fake.kernels);
    for (int i = 0; i < *found; ++i) {
      results[i] = {};
      results[i].workspaceSize = 4096;
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  f.matmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                const cublasLtMatmulAlgo_t*, void* workspace, std::size_t bytes,
                cudaStream_t stream) {
    FakeCublasLt& fake = current();
    const LtObject& what = object_of(description);
    fake.computed.push_back({what.compute, object_of(d_layout).type, workspace, bytes, stream});
    return fake.multiply(what, *static_cast<const float*>(alpha), a, object_of(a_layout), b,
                         object_of(b_layout), *static_cast<const float*>(beta), c, d,
                         object_of(d_layout));
  };
  return f;
}

}  // namespace lockstep::engine::cuda
