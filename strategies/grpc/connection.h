// SPDX-License-Identifier: MIT
// A gRPC connection to a serving task. It connects with the first call. After a loss it reconnects
// 0.2 to 1 s after each failure; meanwhile calls fail at once with kUnavailable. It notices a
// silent server after two seconds, whatever the deadline. Bodies are not copied.
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
  // Name that the server's certificate must have; empty: the host of the address.
  std::string server_name = {};
  std::size_t most_message_bytes = std::size_t(64) << 20;  // larger ones are refused, both ways
};

// Costs some microseconds; the first call waits for the connection. Slices of a request without an
// owner may be freed when `done` is called. `done` waits until gRPC has stopped reading them, even
// after the deadline. The connection must not be destroyed from within `done`. From then on the
// process's allocator keeps more freed memory (channel_arguments.h). Throws Error(kInvalid) if the
// address is invalid, and the errors of `read` of the TLS files.
std::unique_ptr<rpc::Connection> connect(const std::string& address,
                                         const ConnectOptions& options = {});

}  // namespace lockstep::strategies::grpc
