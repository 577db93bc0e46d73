// SPDX-License-Identifier: MIT
// The functions of cuDNN that lockstep calls, found at run time. Tests fill the table with their
// own. It must outlive what was made with it. Any thread.
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

  // Throws Error(kDevice) where `status` is not success: "cuDNN: cudnnCreate failed:
  // CUDNN_STATUS_NOT_INITIALIZED (what the library says besides)".
  void check(cudnnStatus_t status, const char* call) const;
  std::string last_error() const;  // of the calling thread, one line; empty where there was none
};

// The library stays open to the end of the program. Throws Error(kUnavailable) where there is none,
// and where it is not of the major version that lockstep was built with.
Cudnn load_cudnn();

}  // namespace lockstep::engine::cuda
