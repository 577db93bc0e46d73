// SPDX-License-Identifier: MIT
#include "engine/cuda/cudnn.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "engine/cuda/library.h"

namespace lockstep::engine::cuda {

Cudnn load_cudnn() {
  const Library library(
      {.names = {fmt::format("libcudnn.so.{}", CUDNN_MAJOR)},
       .folders = {"/usr/local/cuda/lib64"},
       .help = fmt::format("install cuDNN {}, or add its folder to LD_LIBRARY_PATH", CUDNN_MAJOR)});
  Cudnn cudnn;
  take(library, cudnn.version, "cudnnGetVersion");
  take(library, cudnn.error_string, "cudnnGetErrorString");
  take(library, cudnn.last_error_string, "cudnnGetLastErrorString");
  take(library, cudnn.create, "cudnnCreate");
  take(library, cudnn.destroy, "cudnnDestroy");
  take(library, cudnn.set_stream, "cudnnSetStream");
  take(library, cudnn.create_descriptor, "cudnnBackendCreateDescriptor");
  take(library, cudnn.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  take(library, cudnn.set_attribute, "cudnnBackendSetAttribute");
  take(library, cudnn.get_attribute, "cudnnBackendGetAttribute");
  take(library, cudnn.finalize, "cudnnBackendFinalize");
  take(library, cudnn.execute, "cudnnBackendExecute");
  return cudnn;
}

void Cudnn::check(cudnnStatus_t status, const char* call) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string more = last_error();
  fail(Code::kDevice, "cuDNN: {} failed: {}{}", call, error_string(status),
       more.empty() ? "" : fmt::format(" ({})", more));
}

std::string Cudnn::last_error() const {
  std::array<char, 1024> text{};
  last_error_string(text.data(), text.size() - 1);
  std::string line = text.data();
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace lockstep::engine::cuda
