// SPDX-License-Identifier: MIT
// Serves builds without NCCL's header.
#include "collectives/nccl/nccl.h"
#include "engine/base/error.h"

namespace lockstep::collectives::nccl {

bool available() {
  return false;
}

std::string version() {
  return {};
}

std::string finding() {
  return "built without NCCL: install its header beside the CUDA toolkit (Debian: libnccl-dev), "
         "then run meson setup --reconfigure -Dcuda=enabled";
}

std::unique_ptr<Communicator> open(Bootstrap&, const Options&) {
  throw engine::Error(engine::Code::kUnavailable, finding());
}

}  // namespace lockstep::collectives::nccl
