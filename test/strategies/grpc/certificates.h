// SPDX-License-Identifier: MIT
// Certificates for tests, made by the program `openssl` in a folder of their own.
#pragma once
#include <filesystem>
#include <string>

#include "strategies/grpc/tls_files.h"

namespace lockstep::test {

class Certificates {
 public:
  // Creates an authority and a certificate that it signed for 127.0.0.1, localhost and task.test.
  // Throws if openssl fails.
  Certificates();
  ~Certificates();
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  const strategies::grpc::TlsFiles& files() const { return files_; }
  // Writes `bytes` to a file in this folder and returns its path.
  std::string file(const std::string& name, const std::string& bytes) const;
  std::string key_with_password() const;

 private:
  void openssl(const std::string& arguments) const;
  std::filesystem::path folder_;
  strategies::grpc::TlsFiles files_;
};

}  // namespace lockstep::test
