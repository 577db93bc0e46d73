// SPDX-License-Identifier: MIT
#include "test/strategies/grpc/certificates.h"

#include <stdlib.h>

#include <fstream>

#include "engine/base/error.h"

namespace lockstep::test {

namespace fs = std::filesystem;

Certificates::Certificates() {
  std::string name = (fs::temp_directory_path() / "lockstep-certificates-XXXXXX").string();
  engine::require(mkdtemp(name.data()) != nullptr, "no folder for certificates");
  folder_ = name;
  files_ = {(folder_ / "authority.pem").string(), (folder_ / "task.pem").string(),
            (folder_ / "task.key").string()};
  const std::string key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes ";
  openssl("req -x509 " + key + "-days 2 -subj /CN=authority -keyout authority.key -out " +
          files_.authority);
  openssl("req -new " + key + "-subj /CN=task -keyout task.key -out task.request");
  file("names", "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:task.test\n");
  openssl(
      "x509 -req -in task.request -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 "
      "-extfile names -out task.pem");
}

Certificates::~Certificates() {
  std::error_code none;
  fs::remove_all(folder_, none);
}

std::string Certificates::file(const std::string& name, const std::string& bytes) const {
  std::ofstream(folder_ / name, std::ios::binary) << bytes;
  return (folder_ / name).string();
}

std::string Certificates::key_with_password() const {
  openssl("pkey -in task.key -aes128 -passout pass:secret -out locked.key");
  return (folder_ / "locked.key").string();
}

void Certificates::openssl(const std::string& arguments) const {
  const std::string command =
      "cd '" + folder_.string() + "' && openssl " + arguments + " >>log 2>&1";
  engine::require(std::system(command.c_str()) == 0, "openssl failed: {}", arguments);
}

}  // namespace lockstep::test
