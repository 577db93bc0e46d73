// SPDX-License-Identifier: MIT
// The functions of cuBLASLt that lockstep calls, loaded at run time. Tests fill the table with
// fakes. It must outlive everything that was made with it. Thread-safe.
#pragma once
#include <cublasLt.h>

namespace lockstep::engine::cuda {

struct CublasLtFunctions {
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtGetStatusName) get_status_name = nullptr;
  decltype(&cublasLtGetStatusString) get_status_string = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_attribute = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_attribute = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
};

// Loads the library, of the major version that lockstep was built with. It stays loaded until the
// program ends. Throws Error(kUnavailable) if there is none.
CublasLtFunctions load_cublas_lt();

}  // namespace lockstep::engine::cuda
