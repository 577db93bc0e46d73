// SPDX-License-Identifier: MIT
// Heads of messages.proto as the values that a store takes, and requests and answers as messages.
// Functions of their arguments only: any thread. Errors: Error(kInvalid) for values that cannot be
// meant. Built only where there is protobuf, whose types are named here, and known in .cpp files
// alone.
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

// Throws where the bytes are none of this message.
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
