// SPDX-License-Identifier: MIT
#include "collectives/tcp/job_key.h"

#include <openssl/rand.h>

#include <array>

#include "engine/base/error.h"

namespace lockstep::collectives {

void require_possible(const JobKey& key) {
  constexpr std::size_t kLeastBytes = 32;
  engine::require(key.secret.size() >= kLeastBytes,
                  "the secret of a job has {} bytes; it must have at least {}", key.secret.size(),
                  kLeastBytes);
}

std::string random_secret() {
  std::array<unsigned char, 32> bytes{};
  if (RAND_bytes(bytes.data(), int(bytes.size())) != 1)
    engine::fail(engine::Code::kIo, "OpenSSL has no random numbers for the key of the job");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace lockstep::collectives
