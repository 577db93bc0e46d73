// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/variable_client.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "strategies/parameter_server/rpc/messages.pb.h"

namespace lockstep::strategies {

using engine::require;

namespace {

AssignRequest::How how_on_the_wire(NamedVariables::How how) {
  switch (how) {
    case NamedVariables::How::kInit:
      return AssignRequest::INIT;
    case NamedVariables::How::kForce:
      return AssignRequest::FORCE;
    case NamedVariables::How::kSet:
      return AssignRequest::SET;
    case NamedVariables::How::kAdd:
      return AssignRequest::ADD;
  }
  engine::fail(engine::Code::kInvalid, "there is no way {} to assign a variable", int(how));
}

}  // namespace

void VariableClient::ask(std::string_view method, const google::protobuf::MessageLite& head,
                         std::vector<rpc::Slice> body, google::protobuf::MessageLite& answer,
                         engine::Clock::time_point deadline, std::vector<rpc::Slice>* got) {
  rpc::Message message =
      rpc::call(connection_, method, {head.SerializeAsString(), std::move(body)}, deadline);
  if (!answer.ParseFromString(message.head))
    engine::fail(engine::Code::kCorrupt, "{} at {}: the answer is none", method,
                 connection_.address());
  if (got != nullptr) *got = std::move(message.body);
}

void VariableClient::assign(const std::string& name, NamedVariables::How how,
                            const engine::Shape& shape, std::span<const float> values) {
  require(shape.elements() == values.size(), "{} has {} elements, and {} values were given for it",
          engine::in_quotes(name), shape.elements(), values.size());
  AssignRequest request;
  request.set_container(container_);
  request.set_name(name);
  request.set_dtype(std::string(engine::name(engine::DType::kFloat32)));
  request.set_how(how_on_the_wire(how));
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) request.add_shape(shape[axis]);
  const std::span<const std::byte> bytes = std::as_bytes(values);
  AssignReply answer;
  ask("Assign", request, {{bytes.data(), bytes.size(), nullptr}}, answer, until());
}

std::vector<float> VariableClient::read(const std::string& name) {
  ReadRequest request;
  request.set_container(container_);
  request.set_name(name);
  ReadReply answer;
  std::vector<rpc::Slice> body;
  ask("Read", request, {}, answer, until(), &body);
  require(answer.dtype() == engine::name(engine::DType::kFloat32), "{} at {} is {}, not float32",
          engine::in_quotes(name), connection_.address(), engine::in_quotes(answer.dtype()));
  std::string bytes;
  for (const rpc::Slice& slice : body)
    bytes.append(reinterpret_cast<const char*>(slice.data), slice.size);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::size_t VariableClient::reset() {
  ResetRequest request;
  request.set_container(container_);
  ResetReply answer;
  ask("Reset", request, {}, answer, until());
  return answer.variables();
}

std::string VariableClient::status(engine::Clock::time_point deadline) {
  StatusReply answer;
  ask("Status", StatusRequest(), {}, answer, deadline);
  return answer.json();
}

void VariableClient::done(const std::string& why, bool failed) {
  DoneRequest request;
  request.set_why(why);
  request.set_failed(failed);
  DoneReply answer;
  ask("Done", request, {}, answer, until());
}

}  // namespace lockstep::strategies
