// SPDX-License-Identifier: MIT
#include "engine/base/error.h"
#include "strategies/pmix/exchange.h"

namespace lockstep::strategies::pmix {

bool available() {
  return false;
}

std::string version() {
  return {};
}

std::unique_ptr<Exchange> join() {
  engine::fail(
      engine::Code::kInvalid,
      "this build of lockstep has no PMIx, by which parameter servers find each other under "
      "mpirun: describe the cluster by TF_CONFIG, or install PMIx (Debian: libpmix-dev), then run "
      "meson setup --reconfigure -Dpmix=enabled");
}

}  // namespace lockstep::strategies::pmix
