// SPDX-License-Identifier: MIT
// Conversions between messages and gRPC buffers, without copies of bodies. Only `server` and
// `connection` use them. This header names gRPC's type but needs none of gRPC's headers.
#pragma once
#include <memory>

#include "strategies/parameter_server/rpc/rpc.h"

namespace grpc {
class ByteBuffer;
}

namespace lockstep::strategies::grpc {

// Writes `message` into `to`. `held` is kept while gRPC reads bytes of the message without an
// owner.
void write(const rpc::Message& message, const std::shared_ptr<const void>& held,
           ::grpc::ByteBuffer& to);

// Returns the message in `from`. Its slices own their part of the buffer, so the buffer may be
// destroyed. Throws Error(kInvalid) if the bytes are not a message.
rpc::Message read(::grpc::ByteBuffer& from);

}  // namespace lockstep::strategies::grpc
