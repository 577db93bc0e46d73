// SPDX-License-Identifier: MIT
// Flags of mutual TLS between tasks of a parameter server job, the same for all commands. Every
// task has three files. A peer without a certificate of the authority is refused. A server's
// certificate must have its host or address, as in TF_CONFIG, as a subjectAltName:
//   openssl req -x509 ... -addext subjectAltName=IP:10.0.0.2,DNS:node2
#pragma once

#include "strategies/grpc/tls_files.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

// Adds the flags to the parser; `files` outlives the parser. Their contents, and that all three or
// none are given, are checked when the files are read.
void declare(CLI::App& app, strategies::grpc::TlsFiles& files);

}  // namespace lockstep::tools
