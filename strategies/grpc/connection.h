// SPDX-License-Identifier: MIT
// A connection to a task that serves, by gRPC. It connects with the first call, and again after it
// was lost, 0.2 to 1 s after a failure; in between calls fail at once with kUnavailable. A server
// that falls silent is noticed after two seconds, whatever the deadline. Bodies are not copied.
//
// `done` runs on gRPC's threads, of which there are few.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "strategies/grpc/tls_files.h"
#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::strategies::grpc {

struct ConnectOptions {
  TlsFiles tls = {};  // none: without TLS
  std::string server_name =
      {};  // that the server's certificate must have; empty: the address's host
  std::size_t most_message_bytes = std::size_t(64) << 20;  // larger ones are refused, both ways
};

// Costs some microseconds; the first call waits for the connection. Slices of a request that have
// no owner may go when `done` is called: that waits, also after the deadline, until nobody reads
// them. The connection may not be destroyed from within `done`. The process's allocator keeps more
// freed memory from then on (channel_arguments.h). Throws Error(kInvalid) for an address that is
// none, and what `read` of the TLS files throws.
std::unique_ptr<rpc::Connection> connect(const std::string& address,
                                         const ConnectOptions& options = {});

}  // namespace lockstep::strategies::grpc
