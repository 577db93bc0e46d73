// SPDX-License-Identifier: MIT
#include "engine/cuda/context.h"

#include <array>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

std::string id_of(int index) {
  return fmt::format("cuda:{}", index);
}

}  // namespace

GpuFacts facts_of(const Driver& driver, int index) {
  const std::string id = id_of(index);
  CUdevice device = 0;
  check(driver, driver.device_get(&device, index), id, "cuDeviceGet");
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    check(driver, driver.device_get_attribute(&value, which, device), id, "cuDeviceGetAttribute");
    return value;
  };

  GpuFacts facts;
  std::array<char, 256> text{};
  check(driver, driver.device_get_name(text.data(), int(text.size()) - 1, device), id,
        "cuDeviceGetName");
  facts.name = text.data();
  text.fill(0);
  check(driver, driver.device_get_pci_bus_id(text.data(), int(text.size()) - 1, device), id,
        "cuDeviceGetPCIBusId");
  facts.bus_id = text.data();
  facts.capability = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                     attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  check(driver, driver.device_total_mem(&facts.memory, device), id, "cuDeviceTotalMem");
  facts.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  facts.cache = std::size_t(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));

  constexpr int kLeast = Context::kLeastCapability;
  if (facts.capability < kLeast) {
    fail(Code::kDevice, "{} ({}) has compute capability {}.{}; lockstep needs {}.{} or newer", id,
         facts.name, facts.capability / 10, facts.capability % 10, kLeast / 10, kLeast % 10);
  }
  return facts;
}

Context::Context(const Driver& driver, int index)
    : driver_(&driver), index_(index), facts_(facts_of(driver, index)) {
  check(driver.device_get(&device_, index), "cuDeviceGet");
  check(driver.device_primary_ctx_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Context::~Context() {
  if (!stuck_ && !kept_) driver_->device_primary_ctx_release(device_);
}

void Context::add(CUstream stream) const {
  const std::lock_guard lock(streams_mutex_);
  streams_.insert(stream);
}

void Context::remove(CUstream stream) const {
  const std::lock_guard lock(streams_mutex_);
  streams_.erase(stream);
}

void Context::set_on_waiting(Look look) const {
  auto shared = look ? std::make_shared<const Look>(std::move(look)) : nullptr;
  const std::lock_guard lock(look_mutex_);
  look_ = std::move(shared);
}

bool Context::on_waiting(std::chrono::nanoseconds waited) const {
  std::unique_lock lock(look_mutex_);
  const std::shared_ptr<const Look> look = look_;
  lock.unlock();
  if (look) (*look)(waited);
  return look != nullptr;
}

void Context::use() const {
  CUcontext current = nullptr;
  check(driver_->ctx_get_current(&current), "cuCtxGetCurrent");
  if (current != context_) check(driver_->ctx_set_current(context_), "cuCtxSetCurrent");
}

std::size_t Context::free_memory() const {
  use();
  std::size_t free = 0;
  std::size_t total = 0;
  check(driver_->mem_get_info(&free, &total), "cuMemGetInfo");
  return free;
}

// Another library of this process may already have enabled the access.
bool Context::reach(const Context& other) const {
  if (device_ == other.device_) return true;
  int can = 0;
  check(driver_->device_can_access_peer(&can, device_, other.device_), "cuDeviceCanAccessPeer");
  if (can == 0) return false;
  use();
  const CUresult result = driver_->ctx_enable_peer_access(other.context_, 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) check(result, "cuCtxEnablePeerAccess");
  return true;
}

// Once queued work has failed, every call returns its error. The wait callback may know the cause.
void Context::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  if (result >= CUDA_ERROR_ILLEGAL_ADDRESS && result < CUDA_ERROR_NOT_PERMITTED)
    on_waiting(std::chrono::nanoseconds::max());
  cuda::check(*driver_, result, id_of(index_), call);
}

}  // namespace lockstep::engine::cuda
