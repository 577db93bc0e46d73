// SPDX-License-Identifier: MIT
#include "engine/nn/host_context.h"

namespace lockstep::engine {
namespace {

std::size_t tensor_bytes(const Tensor& tensor) {
  return tensor.elements() * size_of(tensor.dtype);
}

}  // namespace

HostContext::HostContext(Context& outer, Ops& host, std::size_t rows)
    : Context(host), outer_(outer) {
  outer.ops->read(reinterpret_cast<const std::byte*>(outer.state), &words_, sizeof words_);
  if (words_.ids != nullptr) {
    ids_.resize(rows);
    outer.ops->read(reinterpret_cast<const std::byte*>(words_.ids), ids_.data(),
                    rows * sizeof(std::int64_t));
    words_.ids = ids_.data();
  }
  state = &words_;
  training = outer.training;
  seed = outer.seed;
}

void HostContext::reduce(int point) {
  outer_.reduce(point);
  outer_.ops->synchronize();
}

Tensor HostContext::room(const Tensor& like, Buffer& buffer) {
  if (!like) return like;
  if (buffer.bytes() < tensor_bytes(like)) buffer = Buffer(tensor_bytes(like));
  return {buffer.data(), like.shape, like.dtype};
}

Tensor HostContext::fetch(const Tensor& from, Buffer& buffer) {
  const Tensor to = room(from, buffer);
  if (to) outer_.ops->read(from.data, to.data, tensor_bytes(from));
  return to;
}

void HostContext::store(const Tensor& from, const Tensor& to) {
  if (to) outer_.ops->write(from.data, to.data, tensor_bytes(to));
}

}  // namespace lockstep::engine
