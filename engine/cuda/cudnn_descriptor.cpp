// SPDX-License-Identifier: MIT
#include "engine/cuda/cudnn_descriptor.h"

#include <algorithm>
#include <utility>

namespace lockstep::engine::cuda {

CudnnDescriptor::CudnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type)
    : library_(&library) {
  library.check(library.create_descriptor(type, &handle_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (handle_ != nullptr) library_->destroy_descriptor(handle_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(handle_, other.handle_);
  return *this;
}

CudnnDescriptor& CudnnDescriptor::set_all(cudnnBackendAttributeName_t name,
                                          cudnnBackendAttributeType_t type, std::size_t count,
                                          const void* values) {
  library_->check(library_->set_attribute(handle_, name, type, std::int64_t(count), values),
                  "cudnnBackendSetAttribute");
  return *this;
}

CudnnDescriptor& CudnnDescriptor::finalize() {
  library_->check(library_->finalize(handle_), "cudnnBackendFinalize");
  return *this;
}

bool CudnnDescriptor::try_finalize() {
  return library_->finalize(handle_) == CUDNN_STATUS_SUCCESS;
}

std::size_t CudnnDescriptor::read(cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, std::size_t most,
                                  void* values) const {
  std::int64_t count = 0;
  library_->check(library_->get_attribute(handle_, name, type, std::int64_t(most), &count, values),
                  "cudnnBackendGetAttribute");
  return std::size_t(std::max<std::int64_t>(count, 0));
}

}  // namespace lockstep::engine::cuda
