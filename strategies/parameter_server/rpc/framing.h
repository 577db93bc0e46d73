// SPDX-License-Identifier: MIT
// Conversion between messages and bytes. The format is the head's fields, then field 15 with the
// body, as protobuf writes a message whose last field is `bytes body = 15`. Bodies are never
// copied. Writing returns only a head, which the body's slices follow; reading leaves the body in
// place. Lengths from outside are checked. Pure; thread-safe; a head is copied once.
#pragma once
#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::strategies::rpc {

// Returns the bytes before the body's slices: the head, and the tag and length of the body. Returns
// only the head if the body is empty.
std::string framed_head(const Message& message);

// Returns the message in these bytes. Field 15 may be anywhere; the last one counts, as in
// protobuf. Throws Error(kInvalid) if the bytes are not a protobuf message.
Message parse(const std::vector<Slice>& bytes);

}  // namespace lockstep::strategies::rpc
