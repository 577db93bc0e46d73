// SPDX-License-Identifier: MIT
// A connection to a service of another process on this host: heads of messages go by a connection
// that carries messages, bodies through memory that both processes map (shared_blocks.h). So bytes
// of arrays are copied once into that memory and read there by the other side, and do not pass
// through sockets, which copy them twice more and cost as much time again in the kernel.
//
// The other side is a SharedService, which maps a block when it is first named. One that cannot (it
// is on another host, or of another user) says so: that call fails with kUnavailable, `log` has one
// line, and from then on bodies go by the other connection, as small ones always do. A call that
// fails leaves a block that nobody uses again, since the service may not have ended with it.
//
// Threads: as the connection's, but that `start` copies the body.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "engine/base/log.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/shared_blocks.h"

namespace lockstep::strategies::rpc {

struct SharedOptions {
  std::size_t least = std::size_t(32)
                      << 10;                // of both bodies of a call: fewer go by the connection
  std::size_t most = std::size_t(1) << 30;  // of calls under way; more go by the connection
};

class SharedConnection : public Connection {
 public:
  SharedConnection(std::unique_ptr<Connection> connection, engine::Log log,
                   const SharedOptions& options = {});
  ~SharedConnection() override;
  // Answers' bodies come through memory where `Message::answer_bytes` said how large they are.
  void start(std::string_view method, Message request, engine::Clock::time_point deadline,
             Done done) override;
  std::string address() const override { return connection_->address(); }
  std::size_t shared_bytes() const;  // of bodies, both ways, that went through memory

 private:
  struct State;  // with the answers' threads
  const std::size_t least_;
  std::shared_ptr<State> state_;
  SharedBlocks blocks_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace lockstep::strategies::rpc
