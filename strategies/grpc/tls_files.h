// SPDX-License-Identifier: MIT
// Mutual TLS with three PEM files: the authority to trust, this task's certificate and its private
// key. Both ends of a connection show their certificates to each other. All tasks of a job may
// share the files. They are read once, when serving or connecting begins.
#pragma once
#include <string>

namespace lockstep::strategies::grpc {

struct TlsFiles {
  std::string authority = {};    // authorities that sign the tasks' certificates
  std::string certificate = {};  // this task's, and intermediate ones
  std::string key = {};          // the certificate's private key, without a password

  bool none() const { return authority.empty() && certificate.empty() && key.empty(); }
};

// Holds the contents of the files.
struct TlsTexts {
  std::string authority = {}, certificate = {}, key = {};
};

// Reads and checks the files. Each error names the file. Throws Error(kInvalid) if only some of the
// three are named, or if the key does not belong to the certificate. Throws Error(kIo) if a file
// cannot be read, and Error(kCorrupt) if it has no valid content.
TlsTexts read(const TlsFiles& files);

}  // namespace lockstep::strategies::grpc
