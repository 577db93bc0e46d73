// SPDX-License-Identifier: MIT
#include "engine/cuda/cublas_lt_functions.h"

#include <fmt/core.h>

#include "engine/cuda/library.h"

namespace lockstep::engine::cuda {

CublasLtFunctions load_cublas_lt() {
  const Library library({.names = {fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR)},
                         .folders = {"/usr/local/cuda/lib64"},
                         .help = fmt::format("install cuBLAS of CUDA {}, or add its folder to "
                                             "LD_LIBRARY_PATH",
                                             CUBLAS_VER_MAJOR)});
  CublasLtFunctions functions;
  take(library, functions.version, "cublasLtGetVersion");
  take(library, functions.get_status_name, "cublasLtGetStatusName");
  take(library, functions.get_status_string, "cublasLtGetStatusString");
  take(library, functions.create, "cublasLtCreate");
  take(library, functions.destroy, "cublasLtDestroy");
  take(library, functions.layout_create, "cublasLtMatrixLayoutCreate");
  take(library, functions.layout_destroy, "cublasLtMatrixLayoutDestroy");
  take(library, functions.desc_create, "cublasLtMatmulDescCreate");
  take(library, functions.desc_destroy, "cublasLtMatmulDescDestroy");
  take(library, functions.desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  take(library, functions.preference_create, "cublasLtMatmulPreferenceCreate");
  take(library, functions.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  take(library, functions.preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  take(library, functions.get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  take(library, functions.matmul, "cublasLtMatmul");
  return functions;
}

}  // namespace lockstep::engine::cuda
