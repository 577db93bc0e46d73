// SPDX-License-Identifier: MIT
#include "collectives/nccl/nccl.h"

#include "collectives/nccl/hierarchical.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/nccl/nccl_functions.h"
#include "engine/base/error.h"

namespace lockstep::collectives::nccl {

bool available() {
  return !version().empty();
}

std::string version() {
  try {
    return version_of(load_nccl());
  } catch (const engine::Error&) {
    return {};
  }
}

std::string finding() {
  try {
    return "NCCL " + version_of(load_nccl());
  } catch (const engine::Error& error) {
    return error.what();
  }
}

std::unique_ptr<Communicator> open(Bootstrap& bootstrap, const Options& options) {
  auto flat = NcclCommunicator::open(
      bootstrap, [] { return load_nccl(); }, options);
  if (!options.hierarchical) return flat;
  return std::make_unique<Hierarchical>(std::move(flat), bootstrap.hosts());
}

}  // namespace lockstep::collectives::nccl
