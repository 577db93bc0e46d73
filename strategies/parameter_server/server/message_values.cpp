// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/message_values.h"

#include <utility>

#include "engine/checkpoint/safetensors.h"
#include "strategies/parameter_server/rpc/messages.pb.h"

namespace lockstep::strategies {

using engine::in_quotes;
using engine::require;

namespace {

engine::Shape shape_of_field(const google::protobuf::RepeatedField<std::uint64_t>& extents,
                             const std::string& name) {
  return shape_of({extents.data(), std::size_t(extents.size())}, in_quotes(name));
}

engine::UpdateRule rule_of(const Rule& rule) {
  engine::UpdateRule result;
  const std::string& kind = rule.kind();
  require(kind == "sgd" || kind == "adam" || kind == "adamw",
          "an optimizer {} is not known; known are sgd, adam, adamw", in_quotes(kind));
  result.kind = kind == "sgd"    ? engine::UpdateKind::kSgd
                : kind == "adam" ? engine::UpdateKind::kAdam
                                 : engine::UpdateKind::kAdamW;
  result.momentum = rule.momentum();
  result.nesterov = rule.nesterov();
  result.weight_decay = rule.weight_decay();
  result.beta1 = rule.beta1();
  result.beta2 = rule.beta2();
  result.epsilon = rule.epsilon();
  return result;
}

std::vector<ShardRange> list_of(const google::protobuf::RepeatedPtrField<Part>& parts) {
  std::vector<ShardRange> result;
  for (const Part& part : parts) result.push_back({part.shard(), part.begin(), part.end()});
  return result;
}

template <class Head>
ShardRows shard_rows(const Head& head) {
  return {head.shard(), {head.rows().begin(), head.rows().end()}};
}

template <class Head>
PushOrder push_of(const Head& head, std::vector<rpc::Slice> body) {
  PushOrder order;
  order.generation = head.generation();
  order.worker = head.worker();
  order.sequence = head.sequence();
  order.step = head.step();
  order.pulled = head.pulled();
  order.rate = head.rate();
  order.last = head.last();
  order.bfloat16 = head.bfloat16();
  order.body = std::move(body);
  return order;
}

}  // namespace

void parse_head(const std::string& bytes, std::size_t most, google::protobuf::MessageLite& head) {
  require(bytes.size() <= most, "a head of {} bytes; at most {} can be", bytes.size(), most);
  const google::protobuf::LogSilencer silent;  // the reply reports errors, not a log
  require(head.ParseFromArray(bytes.data(), int(bytes.size())),
          "the head is none of this call's messages");
}

JobSpec spec_of(const OpenRequest& head) {
  JobSpec spec;
  spec.placement_hash = head.placement_hash();
  spec.rule = rule_of(head.rule());
  for (const Shard& shard : head.shards()) {
    ShardSpec& here = spec.shards.emplace_back();
    here.name = shard.name();
    here.shape = shape_of_field(shard.shape(), shard.name());
    here.first_row = shard.first_row();
    here.rows = shard.rows();
    here.dtype = engine::dtype_of(shard.dtype());
    here.frozen = shard.frozen();
    here.sparse = shard.sparse();
    here.decays = !shard.undecayed();
  }
  const Policy& policy = head.policy();
  spec.policy.synchronous = policy.synchronous();
  spec.policy.workers = policy.workers();
  spec.policy.aggregate = policy.aggregate();
  spec.policy.scale_rate = policy.scale_rate();
  spec.policy.most_staleness = policy.most_staleness();
  return spec;
}

std::vector<ShardRange> parts_of(const AssignRequest& head) {
  return list_of(head.parts());
}

PullOrder order_of(const PullRequest& head) {
  PullOrder order;
  order.generation = head.generation();
  order.parts = list_of(head.parts());
  order.at_least = head.at_least();
  order.bfloat16 = head.bfloat16();
  return order;
}

PullOrder order_of(const PullRowsRequest& head) {
  PullOrder order;
  order.generation = head.generation();
  order.rows = shard_rows(head);
  order.at_least = head.at_least();
  order.bfloat16 = head.bfloat16();
  return order;
}

PushOrder order_of(const PushRequest& head, std::vector<rpc::Slice> body) {
  PushOrder order = push_of(head, std::move(body));
  order.parts = list_of(head.parts());
  order.want_weights = head.want_weights();
  return order;
}

PushOrder order_of(const PushRowsRequest& head, std::vector<rpc::Slice> body) {
  PushOrder order = push_of(head, std::move(body));
  order.rows = shard_rows(head);
  return order;
}

NamedVariables::How how_of(const AssignRequest& head) {
  switch (head.how()) {
    case AssignRequest::INIT:
      return NamedVariables::How::kInit;
    case AssignRequest::FORCE:
      return NamedVariables::How::kForce;
    case AssignRequest::SET:
      return NamedVariables::How::kSet;
    case AssignRequest::ADD:
      return NamedVariables::How::kAdd;
    default:  // values from outside the enum
      engine::fail(engine::Code::kInvalid, "there is no way {} to assign", int(head.how()));
  }
}

NamedVariables::Value value_of(const AssignRequest& head, std::vector<rpc::Slice> body) {
  return {shape_of_field(head.shape(), head.name()), engine::dtype_of(head.dtype()),
          std::move(body)};
}

rpc::Message message_of(const google::protobuf::MessageLite& head) {
  return {head.SerializeAsString(), {}};
}

rpc::Reply reply(const google::protobuf::MessageLite& head, std::vector<rpc::Slice> body) {
  rpc::Reply result;
  result.message.head = head.SerializeAsString();
  result.message.body = std::move(body);
  return result;
}

rpc::Reply pull_reply(ShardAnswer answer) {
  if (answer.error) return rpc::failed(*answer.error);
  PullReply head;
  head.set_version(answer.version);
  return reply(head, std::move(answer.body));
}

rpc::Reply push_reply(ShardAnswer answer) {
  if (answer.error) return rpc::failed(*answer.error);
  PushReply head;
  head.set_what(PushReply::What(int(answer.what)));  // the same order
  static_assert(int(PushOutcome::kRepeated) == PushReply::REPEATED);
  head.set_version(answer.version);
  head.set_staleness(answer.staleness);
  return reply(head, std::move(answer.body));
}

rpc::Reply read_reply(NamedVariables::Value value) {
  ReadReply head;
  for (std::size_t axis = 0; axis < value.shape.rank(); ++axis) head.add_shape(value.shape[axis]);
  head.set_dtype(std::string(engine::name(value.dtype)));
  return reply(head, std::move(value.body));
}

}  // namespace lockstep::strategies
