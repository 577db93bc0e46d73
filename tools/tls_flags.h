// SPDX-License-Identifier: MIT
// The flags of mutual TLS between tasks of a parameter server job: the same for all commands.
#pragma once

#include "strategies/grpc/tls_files.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

// Adds the flags to the parser; `files` outlives the parser. That all three are given or none, and
// what stands in them, is checked where they are read.
void declare(CLI::App& app, strategies::grpc::TlsFiles& files);

}  // namespace lockstep::tools
