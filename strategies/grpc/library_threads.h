// SPDX-License-Identifier: MIT
// gRPC waits forever if the system cannot give it threads, so lockstep checks this first.
// Thread-safe.
#pragma once

namespace lockstep::strategies::grpc {

// Throws Error(kIo) unless as many threads as gRPC starts can run at once.
void require_threads();

}  // namespace lockstep::strategies::grpc
