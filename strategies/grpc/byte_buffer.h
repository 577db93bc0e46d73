// SPDX-License-Identifier: MIT
// Messages as gRPC's buffers and back, without copying bodies. For `server` and `connection` alone;
// names gRPC's type, but needs none of its headers.
#pragma once
#include <memory>

#include "strategies/parameter_server/rpc/rpc.h"

namespace grpc {
class ByteBuffer;
}

namespace lockstep::strategies::grpc {

// `held` is kept as long as gRPC reads bytes of the message that have no owner.
void write(const rpc::Message& message, const std::shared_ptr<const void>& held,
           ::grpc::ByteBuffer& to);

// Its slices own what they need of the buffer, which may go. Throws Error(kInvalid) for what is no
// message.
rpc::Message read(::grpc::ByteBuffer& from);

}  // namespace lockstep::strategies::grpc
