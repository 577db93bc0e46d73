// SPDX-License-Identifier: MIT
#include "engine/cuda/gpu_list.h"

#include "engine/base/error.h"

namespace lockstep::engine::cuda {

std::vector<std::unique_ptr<Device>> gpu_list(const Driver& driver, const GpuKernels& kernels,
                                              double memory_fraction, std::size_t memory_bytes) {
  std::vector<std::unique_ptr<Device>> list;
  const int count = device_count(driver);
  for (int index = 0; index < count; ++index) {
    try {
      list.push_back(std::make_unique<Gpu>(driver, index, kernels, memory_fraction, memory_bytes));
    } catch (const Error& error) {
      // An unusable GPU does not hide the others; gpu_findings gives the reason.
      if (error.code() != Code::kDevice) throw;
    }
  }
  return list;
}

std::vector<std::string> gpu_findings(const Driver& driver) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("driver for CUDA {}; lockstep was built with {}",
                              version_text(version_of(driver)), version_text(CUDA_VERSION)));
  const int count = device_count(driver);
  if (count == 0) {
    lines.push_back("the driver shows no GPU: see nvidia-smi, and CUDA_VISIBLE_DEVICES");
  }
  for (int index = 0; index < count; ++index) {
    try {
      const GpuFacts facts = facts_of(driver, index);
      lines.push_back(
          fmt::format("cuda:{}: {}, compute capability {}.{}, {} GiB, {} multiprocessors, at {}",
                      index, facts.name, facts.capability / 10, facts.capability % 10,
                      facts.memory >> 30, facts.multiprocessors, facts.bus_id));
    } catch (const Error& error) {
      lines.push_back(error.what());
    }
  }
  return lines;
}

}  // namespace lockstep::engine::cuda
