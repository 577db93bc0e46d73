// SPDX-License-Identifier: MIT
#include "engine/cuda/cublas_lt.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

cudaDataType_t cuda_type(DType type) {
  invariant(type == DType::kFloat32 || type == DType::kBFloat16 || type == DType::kFloat16,
            "products on a GPU are of float32, bfloat16 or float16");
  if (type == DType::kFloat32) return CUDA_R_32F;
  return type == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

// Returns the largest power of two that divides the address, at most 256. Larger ones gain nothing.
std::uint32_t alignment_of(const void* data) {
  constexpr std::uintptr_t kMost = 256;
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(data) | kMost;
  return std::uint32_t(address & (~address + 1));
}

std::string product_text(const Product& p) {
  return fmt::format("product of {}, {}x{}{} by {}x{}{}", name(p.dtype), p.m, p.k,
                     p.transpose_a ? " (transposed)" : "", p.k, p.n,
                     p.transpose_b ? " (transposed)" : "");
}

cublasLtEpilogue_t epilogue(const Product& product) {
  if (product.relu) return product.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  return product.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

CublasLt::CublasLt(const CublasLtFunctions& library, const Context& context, Memory& memory,
                   bool tf32)
    : library_(&library),
      context_(&context),
      tf32_(tf32),
      workspace_(memory.allocate(kWorkspace, "workspace of products")) {
  context.use();
  check(library.create(&handle_), "cublasLtCreate", {});
}

CublasLt::~CublasLt() {
  if (!context_->stuck()) library_->destroy(handle_);
}

void CublasLt::run(CudaStream& stream, const Product& product, const void* a, const void* b,
                   const void* bias, void* c) {
  stream.queue([&] { run_now(stream, product, a, b, bias, c); });
}

void CublasLt::run_now(const CudaStream& stream, const Product& product, const void* a,
                       const void* b, const void* bias, void* c) {
  context_->use();
  const void* added = product.bias ? bias : nullptr;
  const Key key{product, {alignment_of(a), alignment_of(b), alignment_of(added), alignment_of(c)}};
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, plan(key, added)).first;
  const Plan& plan = found->second;
  if (product.bias) {
    check(library_->desc_set_attribute(plan.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                       &added, sizeof added),
          "cublasLtMatmulDescSetAttribute", product);
  }
  const float one = 1, kept = product.accumulate ? 1 : 0;
  check(library_->matmul(handle_, plan.description.get(), &one, b, plan.b.get(), a, plan.a.get(),
                         &kept, c, plan.c.get(), c, plan.c.get(), &plan.kernel, workspace_.data(),
                         plan.workspace, stream.handle()),
        "cublasLtMatmul", product);
}

// The library sees a row-major matrix as its transpose: it has as many rows as ours has columns.
CublasLt::Plan CublasLt::plan(const Key& key, const void* bias) const {
  const Product& p = key.product;
  Plan made{.description = description(p),
            .a = p.transpose_a ? layout(p, p.k, p.m) : layout(p, p.m, p.k),
            .b = p.transpose_b ? layout(p, p.n, p.k) : layout(p, p.k, p.n),
            .c = layout(p, p.m, p.n)};
  if (p.bias) {  // the choice depends on its alignment
    check(library_->desc_set_attribute(made.description.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                       &bias, sizeof bias),
          "cublasLtMatmulDescSetAttribute", p);
  }
  choose(made, key);
  return made;
}

CublasLt::Layout CublasLt::layout(const Product& product, std::size_t rows,
                                  std::size_t columns) const {
  cublasLtMatrixLayout_t made = nullptr;
  check(library_->layout_create(&made, cuda_type(product.dtype), columns, rows,
                                std::int64_t(columns)),
        "cublasLtMatrixLayoutCreate", product);
  return {made, library_->layout_destroy};
}

// The library's first operand is our b, and its second is our a.
CublasLt::Description CublasLt::description(const Product& product) const {
  const bool fast = tf32_ && product.dtype == DType::kFloat32;
  cublasLtMatmulDesc_t handle = nullptr;
  check(library_->desc_create(&handle, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                              CUDA_R_32F),
        "cublasLtMatmulDescCreate", product);
  Description made(handle, library_->desc_destroy);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    check(library_->desc_set_attribute(handle, attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute", product);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, product.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, product.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(product));
  return made;
}

void CublasLt::choose(Plan& plan, const Key& key) const {
  cublasLtMatmulPreference_t handle = nullptr;
  check(library_->preference_create(&handle), "cublasLtMatmulPreferenceCreate", key.product);
  const Owned<cublasLtMatmulPreference_t> preference(handle, library_->preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(library_->preference_set_attribute(handle, attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute", key.product);
  };
  const auto [a, b, bias, c] = key.alignments;
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(kWorkspace));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, c);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, c);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  check(library_->get_heuristic(handle_, plan.description.get(), plan.b.get(), plan.a.get(),
                                plan.c.get(), plan.c.get(), handle, 1, &best, &found),
        "cublasLtMatmulAlgoGetHeuristic", key.product);
  if (found == 0) {
    fail(Code::kDevice,
         "cuda:{}: cuBLASLt has no kernel that gives the same bits every time for the {}",
         context_->index(), product_text(key.product));
  }
  check(best.state, "cublasLtMatmulAlgoGetHeuristic", key.product);
  plan.kernel = best.algo;
  plan.workspace = best.workspaceSize;
}

void CublasLt::check(cublasStatus_t status, const char* call, const Product& product) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(Code::kDevice, "cuda:{}: {} failed: {} ({}){}", context_->index(), call,
       library_->get_status_string(status), library_->get_status_name(status),
       product.m == 0 ? "" : fmt::format(", for the {}", product_text(product)));
}

std::size_t CublasLt::Hash::operator()(const Key& key) const {
  const Product& p = key.product;
  std::size_t sum = 0;
  for (const std::size_t part :
       {std::size_t(p.dtype), p.m, p.n, p.k, std::size_t(p.transpose_a), std::size_t(p.transpose_b),
        std::size_t(p.accumulate), std::size_t(p.bias), std::size_t(p.relu)}) {
    sum = sum * 1000003 + part;
  }
  for (const std::uint32_t alignment : key.alignments) sum = sum * 1000003 + alignment;
  return sum;
}

}  // namespace lockstep::engine::cuda
