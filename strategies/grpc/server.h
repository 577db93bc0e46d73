// SPDX-License-Identifier: MIT
// A service that tasks on other hosts can call, by gRPC. Bodies of messages are not copied on the
// way from the socket to the service, nor back. Beside it the server answers gRPC's own service for
// health checks (grpc.health.v1.Health). A client that falls silent is noticed after two seconds.
//
// The service is called on threads of the server, several at once. They are not gRPC's: those
// answer for this task while it computes, so that nobody takes it for dead.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "strategies/grpc/tls_files.h"
#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::strategies::grpc {

struct ServeOptions {
  // A host's name or number of this host and a port; 0: one that is free. Others than this host can
  // call where the address is none of loopback's: that needs TLS, or `insecure`.
  std::string address = "127.0.0.1:0";
  TlsFiles tls = {};      // none: everybody who reaches the port may call
  bool insecure = false;  // so it is meant
  std::size_t most_message_bytes = std::size_t(64) << 20;  // larger ones are refused
  // What messages that are arriving take at the most, all together. gRPC sees only behind its end
  // that a message is too large, so this bounds what it takes. When it is reached, senders wait; a
  // message that has not arrived in time is given up, with kUnavailable.
  std::size_t most_memory_bytes = std::size_t(1) << 30;
  std::chrono::milliseconds arrival{60000};
  int threads = 0;  // that call the service; 0: as many as there are processors, and at least two
};

class Server {
 public:
  // Ends at once: calls under way fail with kUnavailable at their callers, and their `done` does
  // nothing any more, so that it may be called later than that. Waits for calls of the service that
  // have not returned. Not from within the service.
  virtual ~Server() = default;
  virtual std::string address() const = 0;  // "127.0.0.1:41234": the host as it was given
  virtual int port() const = 0;
  virtual void healthy(bool is) = 0;  // what health checks hear; at first they hear that it is
};

// The service outlives the server, and the process's allocator keeps more freed memory from then on
// (channel_arguments.h). Slices without owner in its replies outlive the server, too.
// Throws Error(kInvalid) for an address that is none, or that needs TLS; Error(kIo) where the port
// cannot be had; and what `read` of the TLS files throws.
std::unique_ptr<Server> serve(rpc::Service& service, const ServeOptions& options = {});

}  // namespace lockstep::strategies::grpc
