// SPDX-License-Identifier: MIT
// A connection to a service of another process on this host. Heads of messages use an inner
// connection; bodies use memory that both processes map (shared_blocks.h). A body is copied once
// into that memory and read there. Sockets would copy it twice more, which costs as much time again
// in the kernel. Tasks use it for servers whose address names the same host as their own.
//
// The other side is a SharedService, which maps a block at its first use. If it cannot (it runs on
// another host or as another user), the call fails with kUnavailable and `log` gets one line. From
// then on all bodies use the inner connection, as small ones always do. A failed call spoils its
// block, since the service may still use it.
//
// Threads: like the inner connection, except that `start` copies the body.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "engine/base/log.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/shared_blocks.h"

namespace lockstep::strategies::rpc {

struct SharedOptions {
  // Minimum bytes of both bodies of a call; smaller ones use the inner connection.
  std::size_t least = std::size_t(32) << 10;
  // Maximum bytes of calls in flight; calls beyond it use the inner connection.
  std::size_t most = std::size_t(1) << 30;
};

class SharedConnection : public Connection {
 public:
  SharedConnection(std::unique_ptr<Connection> connection, engine::Log log,
                   const SharedOptions& options = {});
  ~SharedConnection() override;
  // Answers use shared memory only if `Message::answer_bytes` gave their size.
  void start(std::string_view method, Message request, engine::Clock::time_point deadline,
             Done done) override;
  std::string address() const override { return connection_->address(); }
  std::size_t shared_bytes() const;  // bytes of bodies through memory, both ways

 private:
  struct State;  // shared with the answers' threads
  const std::size_t least_;
  std::shared_ptr<State> state_;
  SharedBlocks blocks_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace lockstep::strategies::rpc
