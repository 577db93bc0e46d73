// SPDX-License-Identifier: MIT
// A message as bytes and back: the fields of the head, then field 15 with the body, which is what
// protobuf writes for a message whose last field is `bytes body = 15`. Bodies are never copied:
// what is written is a head alone, behind which the body's slices follow, and what is read stays
// where it came. Lengths that came from outside are never trusted. Pure; any thread; a head is
// copied once.
#pragma once
#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::strategies::rpc {

// What stands in front of the body's slices: the head, and the tag and length of the body; the head
// alone where the body is empty.
std::string framed_head(const Message& message);

// The message that these bytes are. Field 15 may stand anywhere, and of several the last one
// counts, as protobuf has it. Throws Error(kInvalid) for what is no protobuf message.
Message parse(const std::vector<Slice>& bytes);

}  // namespace lockstep::strategies::rpc
