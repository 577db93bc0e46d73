// SPDX-License-Identifier: MIT
// Conversions between the messages of messages.proto and the values of a store. Pure; thread-safe.
// Throw Error(kInvalid) for invalid values. Built only with protobuf; only .cpp files include its
// headers.
#pragma once
#include <string>
#include <vector>

#include "strategies/parameter_server/server/named_variables.h"
#include "strategies/parameter_server/server/shard_orders.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace lockstep {
class AssignRequest;
class OpenRequest;
class PullRequest;
class PullRowsRequest;
class PushRequest;
class PushRowsRequest;
}  // namespace lockstep

namespace lockstep::strategies {

// Throws Error(kInvalid) if the bytes are not a message of this type.
void parse_head(const std::string& bytes, std::size_t most, google::protobuf::MessageLite& head);

JobSpec spec_of(const OpenRequest& head);
PullOrder order_of(const PullRequest& head);
PullOrder order_of(const PullRowsRequest& head);
PushOrder order_of(const PushRequest& head, std::vector<rpc::Slice> body);
PushOrder order_of(const PushRowsRequest& head, std::vector<rpc::Slice> body);
std::vector<ShardRange> parts_of(const AssignRequest& head);
NamedVariables::How how_of(const AssignRequest& head);
NamedVariables::Value value_of(const AssignRequest& head, std::vector<rpc::Slice> body);

rpc::Message message_of(const google::protobuf::MessageLite& head);  // without a body
rpc::Reply reply(const google::protobuf::MessageLite& head, std::vector<rpc::Slice> body = {});
rpc::Reply pull_reply(ShardAnswer answer);
rpc::Reply push_reply(ShardAnswer answer);
rpc::Reply read_reply(NamedVariables::Value value);

}  // namespace lockstep::strategies
