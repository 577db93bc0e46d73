// SPDX-License-Identifier: MIT
#include "test/strategies/parameter_server/rpc/echo_service.h"

#include <chrono>
#include <cstring>

namespace lockstep::test {

using namespace std::chrono_literals;
using strategies::rpc::Caller;
using strategies::rpc::Done;
using strategies::rpc::Message;
using strategies::rpc::Reply;
using strategies::rpc::Slice;

void EchoService::call(std::string_view method, Message request,
                       std::shared_ptr<const Caller> caller, Done done) {
  ++calls_;
  Reply reply;
  if (method == "Echo" || method == "Busy") {
    for (const auto until = engine::Clock::now() + 100ms;
         method == "Busy" && engine::Clock::now() < until;) {
    }
    reply.message = std::move(request);
  } else if (method == "Count") {
    // A protobuf field with number 1 and a value below 128.
    reply.message.head = {char(0x08), char(std::min<std::size_t>(request.body.size(), 127))};
  } else if (method == "Fail") {
    reply = strategies::rpc::failed(engine::Code(request.head.at(1)), body_of(request));
  } else if (method == "Silent") {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(request), std::move(caller), std::move(done)});
    changed_.notify_all();
    return;
  } else {
    reply = strategies::rpc::failed(engine::Code::kInvalid, "no method of the echo");
  }
  done(std::move(reply));
}

bool EchoService::wait_silent(std::size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10),
                           [&] { return waiting_.size() >= count; });
}

std::vector<std::shared_ptr<const Caller>> EchoService::silent_callers() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Caller>> callers;
  for (const Waiting& waiting : waiting_) callers.push_back(waiting.caller);
  return callers;
}

void EchoService::answer() {
  std::vector<Waiting> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
  }
  for (Waiting& one : waiting) {
    Reply reply;
    reply.message = std::move(one.request);
    one.done(std::move(reply));
  }
}

Message message_of(std::string head, std::size_t bytes, std::uint64_t seed, std::size_t slices) {
  const auto owner = std::make_shared<std::vector<std::byte>>(bytes);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (std::byte& byte : *owner) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = std::byte(state >> 56);
  }
  Message message;
  message.head = std::move(head);
  for (std::size_t i = 0; i < slices; ++i) {
    const std::size_t begin = bytes * i / slices, end = bytes * (i + 1) / slices;
    message.body.push_back(Slice{owner->data() + begin, end - begin, owner});
  }
  return message;
}

std::string body_of(const Message& message) {
  std::string body;
  body.reserve(message.body_bytes());
  for (const Slice& slice : message.body)
    body.append(reinterpret_cast<const char*>(slice.data), slice.size);
  return body;
}

}  // namespace lockstep::test
