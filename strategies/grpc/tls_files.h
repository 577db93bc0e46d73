// SPDX-License-Identifier: MIT
// Mutual TLS by three files in PEM: whom to believe, who this task is, and the proof of it. Both
// ends of a connection have them, and each shows its certificate to the other. All tasks of a job
// may have the same three. Read once, when serving or connecting begins.
#pragma once
#include <string>

namespace lockstep::strategies::grpc {

struct TlsFiles {
  std::string authority = {};    // certificates of those who sign certificates of tasks
  std::string certificate = {};  // of this task, and those between it and the authority
  std::string key = {};          // of this certificate, without a password

  bool none() const { return authority.empty() && certificate.empty() && key.empty(); }
};

// What stood in them.
struct TlsTexts {
  std::string authority = {}, certificate = {}, key = {};
};

// Throws Error(kInvalid) where some of the three are named and some are not, and where the key is
// of another certificate; Error(kIo) for a file that cannot be read; Error(kCorrupt) for one that
// is not what it should be. Each text names the file.
TlsTexts read(const TlsFiles& files);

}  // namespace lockstep::strategies::grpc
