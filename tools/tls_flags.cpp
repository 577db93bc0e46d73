// SPDX-License-Identifier: MIT
#include "tools/tls_flags.h"

#include <CLI/CLI.hpp>

#include "tools/bounds.h"

namespace lockstep::tools {

void declare(CLI::App& app, strategies::grpc::TlsFiles& files) {
  app.add_option("--tls-authority", files.authority,
                 "authority that signs the tasks' certificates (PEM); with the next two flags "
                 "tasks use mutual TLS only")
      ->check(file_name());
  app.add_option("--tls-certificate", files.certificate, "certificate of this task (PEM)")
      ->check(file_name());
  app.add_option("--tls-key", files.key,
                 "private key of this certificate (PEM), without a password")
      ->check(file_name());
}

}  // namespace lockstep::tools
