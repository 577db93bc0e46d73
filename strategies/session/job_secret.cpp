// SPDX-License-Identifier: MIT
#include "strategies/session/job_secret.h"

#include <cstdlib>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/plain_file.h"

namespace lockstep::strategies {
namespace {

constexpr std::size_t kLeastSecret = 32, kMostSecret = 4096;
constexpr char kHow[] = "openssl rand -hex 32 makes one";

}  // namespace

std::string take_job_secret() {
  std::string secret;
  if (const char* const file = std::getenv("LOCKSTEP_SECRET_FILE"); file != nullptr && *file != 0) {
    secret = engine::read_text(file, std::string("LOCKSTEP_SECRET_FILE: ") + file, kMostSecret);
    secret.erase(secret.find_last_not_of(" \t\r\n") + 1);
    engine::require(secret.size() >= kLeastSecret,
                    "LOCKSTEP_SECRET_FILE: {} has a secret of {} characters, and {} are the least; "
                    "{}",
                    file, secret.size(), kLeastSecret, kHow);
    return secret;
  }
  char* const value = std::getenv("LOCKSTEP_SECRET");
  if (value == nullptr) return {};
  secret = value;
  explicit_bzero(value, secret.size());
  engine::require(!secret.empty(),
                  "LOCKSTEP_SECRET is empty; a session erases it, so a second session of a program "
                  "needs LOCKSTEP_SECRET_FILE");
  engine::require(secret.size() >= kLeastSecret,
                  "LOCKSTEP_SECRET has {} characters, and {} are the least; {}", secret.size(),
                  kLeastSecret, kHow);
  return secret;
}

collectives::JobKey job_key(const Launch& launch, bool insecure) {
  collectives::JobKey key{.job = fmt::format("{} processes", launch.size)};
  if (launch.one_host) return key;
  // The process manager distributes the secret of the first process.
  if (launch.meeting == Launch::Meeting::kPmi) {
    key.secret = collectives::random_secret();
    return key;
  }
  key.secret = take_job_secret();
  if (key.secret.empty() && insecure) key.secret = std::string(kLeastSecret, '-');
  engine::require(!key.secret.empty(),
                  "the processes meet at {} and need a secret: give all of them the same in "
                  "LOCKSTEP_SECRET, or in a file that LOCKSTEP_SECRET_FILE names ({}), or give "
                  "--insecure, which lets anybody take part who reaches this address",
                  launch.rendezvous, kHow);
  return key;
}

}  // namespace lockstep::strategies
