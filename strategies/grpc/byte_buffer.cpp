// SPDX-License-Identifier: MIT
#include "strategies/grpc/byte_buffer.h"

#include <grpcpp/support/byte_buffer.h>

#include "strategies/parameter_server/rpc/framing.h"

namespace lockstep::strategies::grpc {

namespace {

using Owner = std::shared_ptr<const void>;

void release(void* owner) {
  delete static_cast<Owner*>(owner);
}

}  // namespace

void write(const rpc::Message& message, const Owner& held, ::grpc::ByteBuffer& to) {
  std::vector<::grpc::Slice> slices;
  slices.reserve(message.body.size() + 1);
  slices.emplace_back(rpc::framed_head(message));
  for (const rpc::Slice& slice : message.body) {
    if (slice.size == 0) continue;
    auto* owner = new Owner(slice.owner ? slice.owner : held);
    slices.emplace_back(const_cast<std::byte*>(slice.data), slice.size, release, owner);
  }
  to = ::grpc::ByteBuffer(slices.data(), slices.size());
}

rpc::Message read(::grpc::ByteBuffer& from) {
  auto slices = std::make_shared<std::vector<::grpc::Slice>>();
  if (!from.Dump(slices.get()).ok())
    engine::fail(engine::Code::kInvalid, "no message: it cannot be read");
  std::vector<rpc::Slice> bytes;
  bytes.reserve(slices->size());
  for (const ::grpc::Slice& slice : *slices)
    bytes.push_back({reinterpret_cast<const std::byte*>(slice.begin()), slice.size(), slices});
  return rpc::parse(bytes);
}

}  // namespace lockstep::strategies::grpc
