// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_gpu.h"

#include <numeric>
#include <string_view>

#include "engine/base/error.h"
#include "test/engine/cuda/fake_driver.h"
#include "test/engine/cuda/fake_state.h"

namespace lockstep::engine::cuda {

FakeGpu::FakeGpu(const FakeGpuOptions& options) : state_(std::make_unique<FakeState>(options)) {
  install(state_.get());
}

FakeGpu::~FakeGpu() {
  install(nullptr);
}

Driver FakeGpu::new_driver() const {
  return fake_driver();
}

Driver FakeGpu::driver() const {
  const Driver driver = fake_driver();
  start(driver);
  return driver;
}

std::span<const std::byte> FakeGpu::image(DType dtype) {
  static constexpr std::string_view kFloat32 = "emulated float32";
  static constexpr std::string_view kBFloat16 = "emulated bfloat16";
  static constexpr std::string_view kFloat16 = "emulated float16";
  const std::string_view text = dtype == DType::kFloat32    ? kFloat32
                                : dtype == DType::kBFloat16 ? kBFloat16
                                                            : kFloat16;
  return std::as_bytes(std::span(text));
}

void FakeGpu::stick() {
  const std::lock_guard lock(state_->mutex);
  state_->queue.stick();
}

void FakeGpu::end_processes() {
  const std::lock_guard lock(state_->mutex);
  state_->memory.close_all();
}

std::size_t FakeGpu::early_launches() const {
  const std::lock_guard lock(state_->mutex);
  return state_->early;
}

std::vector<std::string> FakeGpu::kernels_run() const {
  const std::lock_guard lock(state_->mutex);
  return state_->kernels_run;
}

std::size_t FakeGpu::free_memory(int gpu) const {
  const std::lock_guard lock(state_->mutex);
  return state_->memory.free(gpu);
}

std::string FakeGpu::left() const {
  const std::lock_guard lock(state_->mutex);
  std::string text;
  const auto add = [&](std::size_t count, std::string_view what) {
    if (count == 0) return;
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", count, what, count == 1 ? "" : "s");
  };
  add(state_->queue.streams(), "stream");
  add(state_->events.size(), "event");
  add(state_->memory.blocks(), "block");
  add(state_->memory.pinned(), "pinned range");
  add(state_->modules.size(), "module");
  add(state_->graphs.size(), "graph");
  add(state_->executables.size(), "executable graph");
  add(std::accumulate(
          state_->contexts.begin(), state_->contexts.end(), std::size_t(0),
          [](std::size_t sum, const auto& context) { return sum + std::size_t(context->holders); }),
      "held context");
  return text;
}

}  // namespace lockstep::engine::cuda
