// SPDX-License-Identifier: MIT
// Synchronous calls to a service, as a client makes them.
#pragma once
#include <span>
#include <string>

#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "test/strategies/parameter_server/server/small_server.h"

namespace lockstep::test {

// Waits at most ten seconds for the reply.
strategies::rpc::Reply call(strategies::rpc::Service& service, const std::string& method,
                            strategies::rpc::Message request,
                            strategies::CallerPointer caller = nullptr);
strategies::rpc::Message message_of(const google::protobuf::MessageLite& head,
                                    std::vector<strategies::rpc::Slice> body = {});

// Makes a call that must succeed. Returns the reply's head and writes its floats to `body`.
template <class Answer>
Answer ask(strategies::rpc::Service& service, const std::string& method,
           const google::protobuf::MessageLite& head, std::span<const float> sent = {},
           std::vector<float>* body = nullptr) {
  const strategies::rpc::Reply reply = call(service, method, message_of(head, slices_of(sent)));
  if (!reply.ok()) throw engine::Error(reply.code, reply.why);
  Answer answer;
  engine::invariant(answer.ParseFromString(reply.message.head), "the reply is no message");
  if (body != nullptr) *body = floats_of(reply.message.body);
  return answer;
}

// Returns the request for container "job", generation 1, two workers: "w" [4, 2], and rows 2 to 8
// of "table" [10, 3].
OpenRequest small_job_message();
// Opens the job and sets its start values.
void open_small_job(strategies::rpc::Service& service);

}  // namespace lockstep::test
