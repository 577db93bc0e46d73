// SPDX-License-Identifier: MIT
// Calls between tasks. A call has a method's name, a head (a protobuf message) and a body (bytes of
// arrays, which are not copied into the head). `Connection` and `Service` hide the transport: gRPC
// (strategies/grpc) or a direct call within a process. No type of a transport appears here.
//
// A message owns its bytes by reference, so they can be kept without copies. Services and `done`
// may run on any thread and must not wait for another call there.
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
  std::shared_ptr<const void> owner = {};  // null: they outlive the call
};

Slice owned(const Slice& slice);  // a slice without an owner is copied
std::size_t bytes_of(const std::vector<Slice>& body);

struct Message {
  std::string head = {};
  std::vector<Slice> body = {};
  // Bytes of the answer's body if the caller knows them, to reserve memory; else 0.
  std::size_t answer_bytes = 0;
  std::size_t body_bytes() const { return bytes_of(body); }
};

// Holds the result of a call: a message or an error. kUnavailable: the service is absent or not
// ready, and the same call may succeed later. Other codes: kTimeout, kPeerLost, kInvalid (refused),
// kAborted (the job is over).
struct Reply {
  engine::Code code = engine::Code::kInvalid;
  std::string why = {};  // empty: success
  Message message = {};
  bool ok() const { return why.empty(); }
};
Reply failed(engine::Code code, std::string why);  // empty `why`: the code's name
Reply failed(const engine::Error& error);

using Done = std::function<void(Reply)>;

// Runs `work` and replies with the error that it throws. If it throws nothing, it has called `done`
// or will.
void answering(const Done& done, const std::function<void()>& work);

// Describes the caller to the service.
class Caller {
 public:
  virtual ~Caller() = default;
  virtual std::string peer() const = 0;  // for users: "ipv4:10.0.0.2:4711"
  // Returns whether the caller no longer waits: its deadline passed, or it died.
  virtual bool gone() const = 0;
};

class Service {
 public:
  virtual ~Service() = default;
  // Calls `done` exactly once, now or later, on any thread; `caller` lives until then. Throws
  // nothing: errors are replies. Copies `method` if it needs it longer.
  virtual void call(std::string_view method, Message request, std::shared_ptr<const Caller> caller,
                    Done done) = 0;
};

class Connection {
 public:
  // Ends calls in flight with kAborted before it returns.
  virtual ~Connection() = default;
  // Returns at once. `done` is called exactly once, at most shortly after the deadline.
  virtual void start(std::string_view method, Message request, engine::Clock::time_point deadline,
                     Done done) = 0;
  virtual std::string address() const = 0;  // for errors
};

// Waits for the reply. Throws its error as Error, with the address and method in the text.
Message call(Connection& connection, std::string_view method, Message request,
             engine::Clock::time_point deadline);

}  // namespace lockstep::strategies::rpc
