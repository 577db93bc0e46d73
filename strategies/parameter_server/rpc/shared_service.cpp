// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/shared_service.h"

#include <algorithm>
#include <cstring>

#include "strategies/parameter_server/rpc/messages.pb.h"

namespace lockstep::strategies::rpc {

using engine::Clock;
using engine::Code;

struct SharedService::Mapping {
  explicit Mapping(engine::Buffer where) : memory(std::move(where)) {}
  engine::Buffer memory;
  Clock::time_point used = Clock::now();  // guarded by the service's lock
};

namespace {

// Writes the answer's body to its place in memory, or keeps it in the message if it does not fit.
Reply answer_in_place(Reply reply, std::byte* to, std::size_t place) {
  if (!reply.ok()) return reply;
  SharedReply head;
  head.set_head(std::move(reply.message.head));
  const std::size_t bytes = reply.message.body_bytes();
  if (bytes <= place) {
    head.set_body_bytes(bytes);
    for (const Slice& slice : reply.message.body) {
      if (slice.size > 0) std::memcpy(to, slice.data, slice.size);
      to += slice.size;
    }
    reply.message.body.clear();
  } else {
    for (Slice& slice : reply.message.body) slice = owned(slice);  // some may belong to the request
  }
  reply.message.head = head.SerializeAsString();
  return reply;
}

}  // namespace

SharedService::SharedService(Service& service, std::chrono::milliseconds idle)
    : service_(service), idle_(idle) {}

SharedService::~SharedService() = default;

std::size_t SharedService::mapped() const {
  const std::scoped_lock lock(mutex_);
  return mapped_.size();
}

void SharedService::let_go() {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  std::erase_if(mapped_, [&](const auto& one) {
    return one.second.use_count() == 1 && now - one.second->used >= idle_;
  });
  if (!mapped_.empty()) work_.add(now + idle_ / 2, [this] { let_go(); });
}

std::shared_ptr<SharedService::Mapping> SharedService::mapping(
    const collectives::MappingAddress& address) {
  const Key key{address.pid, address.file, address.bytes, address.key};
  {
    const std::scoped_lock lock(mutex_);
    const auto found = mapped_.find(key);
    if (found != mapped_.end()) {
      found->second->used = Clock::now();
      return found->second;
    }
  }
  auto fresh = std::make_shared<Mapping>(collectives::map_peer(address));
  const std::scoped_lock lock(mutex_);
  if (mapped_.empty()) work_.add(Clock::now() + idle_ / 2, [this] { let_go(); });
  if (mapped_.size() >= kMostMapped) {
    mapped_.erase(std::min_element(
        mapped_.begin(), mapped_.end(),
        [](const auto& a, const auto& b) { return a.second->used < b.second->used; }));
  }
  return mapped_.emplace(key, std::move(fresh)).first->second;  // if two mapped it, the first stays
}

void SharedService::call(std::string_view method, Message request,
                         std::shared_ptr<const Caller> caller, Done done) {
  if (method != kMethod)
    return service_.call(method, std::move(request), std::move(caller), std::move(done));
  SharedRequest head;
  std::shared_ptr<Mapping> mapping_of_call;
  std::string not_mapped;
  try {
    engine::require(request.body_bytes() == 0 && head.ParseFromString(request.head),
                    "no call through shared memory: it cannot be read");
    const collectives::MappingAddress address = collectives::mapping_address(head.memory());
    engine::require(head.body_bytes() <= address.bytes &&
                        answer_at(head.body_bytes()) <= address.bytes &&
                        head.answer_bytes() <= address.bytes - answer_at(head.body_bytes()),
                    "bodies of {} and {} bytes in shared memory of {}", head.body_bytes(),
                    head.answer_bytes(), address.bytes);
    try {
      mapping_of_call = mapping(address);
    } catch (const engine::Error& error) {
      not_mapped = error.what();
    }
  } catch (const engine::Error& error) {
    return done(failed(error));
  }
  if (!mapping_of_call) {
    SharedReply refused;
    refused.set_refused(not_mapped);
    Reply reply;
    reply.message.head = refused.SerializeAsString();
    return done(std::move(reply));
  }
  Message meant;
  meant.head = std::move(*head.mutable_head());
  const std::size_t body = head.body_bytes();
  std::byte* const memory = mapping_of_call->memory.data();
  if (body > 0) meant.body.push_back({memory, body, nullptr});
  service_.call(head.method(), std::move(meant), std::move(caller),
                [held = std::move(mapping_of_call), to = memory + answer_at(body),
                 place = head.answer_bytes(), done = std::move(done)](Reply reply) {
                  done(answer_in_place(std::move(reply), to, place));
                });
}

}  // namespace lockstep::strategies::rpc
