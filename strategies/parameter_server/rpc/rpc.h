// SPDX-License-Identifier: MIT
// Calls from one task to another: a method's name, a head (a protobuf message) and a body (bytes of
// arrays, which travel without being copied into the head). Whoever moves them stands behind
// `Connection` and `Service`: gRPC (strategies/grpc), or a plain call within one process. No type
// of theirs is seen here.
//
// A message holds on to its bytes by owners, so that nobody copies them to keep them. Threads: a
// service is called, and `done` runs, on any thread; neither may wait for another call there.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::strategies::rpc {

struct Slice {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<const void> owner = {};  // null: they outlive the call's end
};

Slice owned(const Slice& slice);  // of one without owner a copy
std::size_t bytes_of(const std::vector<Slice>& body);

struct Message {
  std::string head = {};
  std::vector<Slice> body = {};
  std::size_t answer_bytes = 0;  // of the answer's body, where a caller knows: place is kept for it
  std::size_t body_bytes() const { return bytes_of(body); }
};

// What came of a call: a message, or what went wrong. kUnavailable: nobody there, or not ready; the
// same call may succeed later. kTimeout, kPeerLost, kInvalid (refused), kAborted (the job is over).
struct Reply {
  engine::Code code = engine::Code::kInvalid;
  std::string why = {};  // empty: it went well
  Message message = {};
  bool ok() const { return why.empty(); }
};
Reply failed(engine::Code code, std::string why);  // an empty text becomes the code's name
Reply failed(const engine::Error& error);

using Done = std::function<void(Reply)>;

// What `work` throws is the reply; where it throws nothing, it has answered or will.
void answering(const Done& done, const std::function<void()>& work);

// Who calls, as the service sees it.
class Caller {
 public:
  virtual ~Caller() = default;
  virtual std::string peer() const = 0;  // "ipv4:10.0.0.2:4711", for people
  virtual bool gone() const = 0;         // it does not wait any more: its deadline, or its death
};

class Service {
 public:
  virtual ~Service() = default;
  // `done` is called exactly once, now or later, on any thread; `caller` lives until then. Throws
  // nothing: what is wrong is a reply. Copies what it keeps of `method`.
  virtual void call(std::string_view method, Message request, std::shared_ptr<const Caller> caller,
                    Done done) = 0;
};

class Connection {
 public:
  virtual ~Connection() = default;  // calls under way end with kAborted before it returns
  // Returns at once. `done` is called exactly once, at the latest a little after the deadline.
  virtual void start(std::string_view method, Message request, engine::Clock::time_point deadline,
                     Done done) = 0;
  virtual std::string address() const = 0;  // for errors
};

// Waits for the reply; throws what went wrong as Error, with the address and method in its text.
Message call(Connection& connection, std::string_view method, Message request,
             engine::Clock::time_point deadline);

}  // namespace lockstep::strategies::rpc
