// SPDX-License-Identifier: MIT
// A client for the variables that a server keeps by name. Variables persist for other clients until
// the container is reset. They are independent of training.
//
//   const auto connection = grpc::connect("127.0.0.1:2221");
//   VariableClient server(*connection, "digits");
//   server.assign("x", NamedVariables::How::kInit, {}, std::array{0.0f});
//   server.assign("x", NamedVariables::How::kAdd, {}, std::array{1.0f});   // atomic
//   const float x = server.read("x").at(0);
//
// Variables are float32 here; messages.proto supports other types. Use an object on one thread at a
// time. Each call sends one message and waits for the reply. Errors have the server's address in
// their texts: Error(kInvalid) if the server refuses, Error(kUnavailable), Error(kTimeout),
// Error(kCorrupt) if the reply is invalid. Built only with protobuf.
#pragma once
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tensor/tensor.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/server/named_variables.h"

namespace google::protobuf {
class MessageLite;
}  // namespace google::protobuf

namespace lockstep::strategies {

class VariableClient {
 public:
  // Uses a connection to one server, which must outlive the client. `deadline`: maximum wait of a
  // call. A connection that retries (retry.h) may add twice.
  explicit VariableClient(rpc::Connection& connection, std::string container = {},
                          std::chrono::milliseconds deadline = std::chrono::seconds(10))
      : connection_(connection), container_(std::move(container)), deadline_(deadline) {}

  // Sends the values without copying them. Also throws Error(kInvalid) if their number differs from
  // the shape's; a scalar's shape is {}.
  void assign(const std::string& name, NamedVariables::How how, const engine::Shape& shape,
              std::span<const float> values);
  // Returns all elements. Also throws Error(kInvalid) if the variable has another type.
  std::vector<float> read(const std::string& name);
  std::size_t reset();  // removes the container; returns its number of variables
  // Returns the server's status (shard_status.h), a JSON object.
  std::string status(engine::Clock::time_point deadline);
  // Tells the server that the job is over, so that its `join` returns.
  void done(const std::string& why, bool failed);

 private:
  void ask(std::string_view method, const google::protobuf::MessageLite& head,
           std::vector<rpc::Slice> body, google::protobuf::MessageLite& answer,
           engine::Clock::time_point deadline, std::vector<rpc::Slice>* got = nullptr);
  engine::Clock::time_point until() const { return engine::Clock::now() + deadline_; }

  rpc::Connection& connection_;
  const std::string container_;
  const std::chrono::milliseconds deadline_;
};

}  // namespace lockstep::strategies
