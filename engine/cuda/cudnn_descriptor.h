// SPDX-License-Identifier: MIT
// Owner of one object of cuDNN's backend API: it is created, given attributes, finalized, queried
// and destroyed. Move-only; use it from one thread at a time. The function table must outlive it.
// Throws Error(kDevice) with the library's call and message.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/cuda/cudnn.h"

namespace lockstep::engine::cuda {

class CudnnDescriptor {
 public:
  CudnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;

  // Sets an attribute to one value or to several.
  template <class Value>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const Value& value) {
    return set_all(name, type_of<Value>(), 1, &value);
  }
  template <class Value>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::span<const Value> values) {
    return set_all(name, type_of<Value>(), values.size(), values.data());
  }
  // Sets descriptors, which may be moved afterwards but must outlive this object.
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
  }
  CudnnDescriptor& set_descriptors(cudnnBackendAttributeName_t name,
                                   std::span<const cudnnBackendDescriptor_t> handles) {
    return set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.size(), handles.data());
  }

  CudnnDescriptor& finalize();
  // Returns false if the library does not support the object; Cudnn::last_error gives the reason.
  bool try_finalize();

  // Returns one value or all values of an attribute of a finalized object.
  template <class Value>
  Value get(cudnnBackendAttributeName_t name) const {
    Value value{};
    read(name, type_of<Value>(), 1, &value);
    return value;
  }
  template <class Value>
  std::vector<Value> get_all(cudnnBackendAttributeName_t name) const {
    std::vector<Value> values(read(name, type_of<Value>(), 0, nullptr));
    values.resize(
        std::min(values.size(), read(name, type_of<Value>(), values.size(), values.data())));
    return values;
  }
  // Fills up to `handles.size()` descriptors of the caller. Returns how many there are.
  std::size_t get_descriptors(cudnnBackendAttributeName_t name,
                              std::span<cudnnBackendDescriptor_t> handles) const {
    return read(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.size(), handles.data());
  }

  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  template <class Value>
  static constexpr cudnnBackendAttributeType_t type_of();
  CudnnDescriptor& set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           std::size_t count, const void* values);
  std::size_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::size_t most, void* values) const;

  const Cudnn* library_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

template <class Value>
constexpr cudnnBackendAttributeType_t CudnnDescriptor::type_of() {
  if constexpr (std::is_same_v<Value, std::int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<Value, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<Value, double>) return CUDNN_TYPE_DOUBLE;
  if constexpr (std::is_same_v<Value, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<Value, char>) return CUDNN_TYPE_CHAR;
  if constexpr (std::is_same_v<Value, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<Value, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<Value, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<Value, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::is_same_v<Value, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<Value, cudnnNanPropagation_t>) return CUDNN_TYPE_NAN_PROPOGATION;
  if constexpr (std::is_same_v<Value, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::is_same_v<Value, cudnnBackendKnobType_t>) return CUDNN_TYPE_KNOB_TYPE;
  if constexpr (std::is_same_v<Value, cudnnBackendNumericalNote_t>) {
    return CUDNN_TYPE_NUMERICAL_NOTE;
  }
}

}  // namespace lockstep::engine::cuda
