// SPDX-License-Identifier: MIT
// A gRPC server that makes a service callable from tasks on other hosts. Bodies of messages are not
// copied between the socket and the service. The server also answers gRPC's health checks
// (grpc.health.v1.Health). It notices a silent client after two seconds.
//
// The server calls the service on its own threads, several at once. gRPC's threads stay free to
// answer for this task while it computes, so that no peer considers it dead.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "strategies/grpc/tls_files.h"
#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::strategies::grpc {

struct ServeOptions {
  // Name or number of this host, and a port; port 0 chooses a free one. Other hosts can call if the
  // address is not a loopback address; this requires TLS or `insecure`. In a pod of Kubernetes the
  // name may take minutes to resolve.
  std::string address = "127.0.0.1:0";
  TlsFiles tls = {};      // none: everyone who reaches the port may call
  bool insecure = false;  // allows other hosts without TLS
  std::size_t most_message_bytes = std::size_t(64) << 20;  // larger ones are refused
  // Bound of the memory of all arriving messages together. It is needed because gRPC checks a
  // message's size only at its end. At the bound senders wait. A message that takes longer than
  // `arrival` fails with kUnavailable.
  std::size_t most_memory_bytes = std::size_t(1) << 30;
  std::chrono::milliseconds arrival{60000};
  // Threads that call the service; 0: one per processor, at least two.
  int threads = 0;
};

class Server {
 public:
  // Ends at once: calls in flight fail with kUnavailable at their callers. Their `done` has no
  // further effect and may be called later. Waits for calls of the service that have not returned.
  // Must not be called from within the service.
  virtual ~Server() = default;
  virtual std::string address() const = 0;  // "127.0.0.1:41234": the host as given
  virtual int port() const = 0;
  // Sets the result of health checks, which is healthy at first.
  virtual void healthy(bool is) = 0;
};

// The service must outlive the server; so must slices without an owner in its replies. From then on
// the process's allocator keeps more freed memory (channel_arguments.h). Throws Error(kInvalid) if
// the address is invalid or needs TLS, Error(kIo) if the port is unavailable, and the errors of
// `read` of the TLS files.
std::unique_ptr<Server> serve(rpc::Service& service, const ServeOptions& options = {});

}  // namespace lockstep::strategies::grpc
