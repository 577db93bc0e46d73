// SPDX-License-Identifier: MIT
#include "collectives/topology/machine_map.h"
#include "engine/base/error.h"

namespace lockstep::collectives::hwloc {

bool available() {
  return false;
}

std::string version() {
  return {};
}

std::optional<MachineMap> this_machine() {
  return std::nullopt;
}

MachineMap described_machine(const std::string&) {
  engine::fail(
      engine::Code::kInvalid,
      "this build of lockstep has no hwloc, which reads descriptions of machines: install it "
      "(Debian: libhwloc-dev), then run meson setup --reconfigure -Dhwloc=enabled; or give "
      "\"cores\" and \"numa_nodes\"");
}

}  // namespace lockstep::collectives::hwloc
