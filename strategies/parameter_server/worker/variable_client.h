// SPDX-License-Identifier: MIT
// A client of the variables that a server keeps by name: what one client makes is there for the
// next, until somebody resets the container. It has nothing to do with training.
//
//   const auto connection = grpc::connect("127.0.0.1:2221");
//   VariableClient server(*connection, "digits");
//   server.assign("x", NamedVariables::How::kInit, {}, std::array{0.0f});
//   server.assign("x", NamedVariables::How::kAdd, {}, std::array{1.0f});   // whoever else adds
//   const float x = server.read("x").at(0);
//
// Variables are of float32 here; any other type goes by messages.proto. One thread, or one object a
// thread; each call is one message and waits for its answer. Each throws what went wrong with the
// server's address in its text: Error(kInvalid) for what the server refuses, Error(kUnavailable),
// Error(kTimeout), Error(kCorrupt) for an answer that is none. Built only where there is protobuf.
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
  // The connection, to one server, outlives the client; its calls wait `deadline` at most. One that
  // tries again (retry.h) may add twice.
  explicit VariableClient(rpc::Connection& connection, std::string container = {},
                          std::chrono::milliseconds deadline = std::chrono::seconds(10))
      : connection_(connection), container_(std::move(container)), deadline_(deadline) {}

  // Values are sent from where they lie. Throws Error(kInvalid), too, where they are not as many as
  // the shape says; a scalar's shape is {}.
  void assign(const std::string& name, NamedVariables::How how, const engine::Shape& shape,
              std::span<const float> values);
  // All elements. Throws Error(kInvalid), too, for a variable of another type.
  std::vector<float> read(const std::string& name);
  std::size_t reset();  // removes the container; how many variables it had
  // What the server says of itself (shard_status.h): a JSON object.
  std::string status(engine::Clock::time_point deadline);
  // Tells the server that the job is over: its `join` returns.
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
