// SPDX-License-Identifier: MIT
// The functions of cuDNN that lockstep calls, loaded at run time. Tests fill the table with fakes.
// It must outlive everything that was made with it. Thread-safe.
#pragma once
#include <cudnn.h>

#include <string>

namespace lockstep::engine::cuda {

struct Cudnn {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error_string = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  // Throws Error(kDevice) unless `status` is success: "cuDNN: cudnnCreate failed:
  // CUDNN_STATUS_NOT_INITIALIZED (further message of the library)".
  void check(cudnnStatus_t status, const char* call) const;
  // Returns the last error of the calling thread as one line; empty if there was none.
  std::string last_error() const;
};

// Loads the library, which stays loaded until the program ends. Throws Error(kUnavailable) if there
// is none or its major version is not the one that lockstep was built with.
Cudnn load_cudnn();

}  // namespace lockstep::engine::cuda
