// SPDX-License-Identifier: MIT
// gRPC waits for ever where the system gives it no threads: so they are asked for before. Any
// thread.
#pragma once

namespace lockstep::strategies::grpc {

// Throws Error(kIo) unless as many threads as gRPC starts can run at once.
void require_threads();

}  // namespace lockstep::strategies::grpc
