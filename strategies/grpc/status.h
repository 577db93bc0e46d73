// SPDX-License-Identifier: MIT
// What went wrong, as gRPC's status and back. Beside the status, which has fewer words than we, a
// line of trailing metadata carries the name of our code, so that it survives the trip exactly. For
// `server` and `connection` alone; pure.
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
// gRPC has methods of services; all of ours are of this one.
inline constexpr std::string_view kService = "/lockstep.ParameterServer/";

// Of a reply that is not ok. The text is clipped to what metadata may hold.
::grpc::Status status_of(const rpc::Reply& reply);

// `code_name` is what trailing metadata said; empty: nothing. `status` is not OK.
rpc::Reply reply_of(const ::grpc::Status& status, std::string_view code_name);

}  // namespace lockstep::strategies::grpc
