// SPDX-License-Identifier: MIT
// Conversions between replies and gRPC statuses. gRPC has fewer codes than lockstep, so a line of
// trailing metadata carries the name of lockstep's code. Only `server` and `connection` use them;
// pure.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "strategies/parameter_server/rpc/rpc.h"

namespace grpc {
class Status;
}

namespace lockstep::strategies::grpc {

inline constexpr const char* kCodeKey = "lockstep-code";  // its value: engine::name(code)
// Prefix of all method names, since gRPC's methods belong to services.
inline constexpr std::string_view kService = "/lockstep.ParameterServer/";

// Returns the status of a failed reply. The text is clipped to the limit of metadata.
::grpc::Status status_of(const rpc::Reply& reply);

// Returns the reply for a `status` that is not OK. `code_name`: the code in the trailing metadata;
// empty if absent.
rpc::Reply reply_of(const ::grpc::Status& status, std::string_view code_name);

}  // namespace lockstep::strategies::grpc
