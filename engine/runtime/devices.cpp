// SPDX-License-Identifier: MIT
#include "engine/runtime/devices.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cuda/cuda_device.h"
#include "engine/ops/ops.h"
#include "engine/reference/reference_device.h"

namespace lockstep::engine {

std::vector<std::unique_ptr<Device>> host_devices() {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(cpu_device());
  devices.push_back(reference_device());
  return devices;
}

std::vector<std::unique_ptr<Device>> all_devices(const DeviceOptions& options) {
  std::vector<std::unique_ptr<Device>> devices = host_devices();
  for (auto& gpu : cuda_devices({.memory_fraction = options.memory_fraction,
                   .memory_bytes = options.memory_bytes,
                   .tf32 = options.tf32,
                   .plan_candidates = options.plan_candidates,
                   .plan_cache = options.plan_cache,
                   .log = options.log})) {
    devices.push_back(std::move(gpu));
  }
  return devices;
}

Device& find(std::span<const std::unique_ptr<Device>> devices, const DeviceId& id) {
  std::string known;
  bool same_kind = false;
  for (const std::unique_ptr<Device>& device : devices) {
    if (device->id() == id) return *device;
    same_kind |= device->id().kind == id.kind;
    known += (known.empty() ? "" : ", ") + to_string(device->id());
  }
  if (id.kind == "cuda" && !same_kind)
    fail(Code::kInvalid, "there is no device {}; this machine has {}; {}", brief(to_string(id)),
         known, fmt::join(cuda_findings(), "; "));
  fail(Code::kInvalid, "there is no device {}; this machine has {}{}", brief(to_string(id)), known,
       id.kind == "gpu" ? "; a GPU is called cuda" : "");
}

std::string fault_of(Device& device) {
  using Numbers = std::array<float, 4>;
  constexpr Numbers kNumbers{1, -2, 0.5, 3}, kDoubled{2, -4, 1, 6};
  try {
    const std::unique_ptr<Ops> ops = device.ops(DType::kFloat32, {});
    const Buffer from = ops->allocate(sizeof(Numbers), "a first sum");
    const Buffer to = ops->allocate(sizeof(Numbers), "a first sum");
    const Shape shape{kNumbers.size(), 1};
    const Tensor x{from.data(), shape, DType::kFloat32}, y{to.data(), shape, DType::kFloat32};
    ops->write(kNumbers.data(), from.data(), sizeof(Numbers));
    ops->add(ops->publish({.examples = kNumbers.size()}), x, x, y);
    Numbers sums{};
    ops->read(to.data(), sums.data(), sizeof sums);
    return sums == kDoubled ? "" : to_string(device.id()) + " computes a wrong sum";
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<std::string> describe_memory(std::span<Device* const> devices) {
  constexpr double kMiB = 1 << 20;
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (std::find(devices.begin(), devices.begin() + std::ptrdiff_t(i), devices[i]) !=
        devices.begin() + std::ptrdiff_t(i))
      continue;  // several replicas use it
    if (const auto memory = cuda_memory(*devices[i]))
      lines.push_back(
          fmt::format("{}: at most {:.1f} MiB of its memory were used by buffers, of {:.1f} MiB "
                      "that might have been",
                      to_string(devices[i]->id()), double(memory->most_used) / kMiB,
                      double(memory->limit) / kMiB));
  }
  return lines;
}

std::vector<std::string> describe_gpus() {
  return cuda_findings();
}

std::vector<LibraryFinding> gpu_libraries() {
  return cuda_libraries();
}

GpuTopology gpu_topology() {
  return cuda_topology();
}

}  // namespace lockstep::engine
