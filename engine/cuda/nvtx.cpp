// SPDX-License-Identifier: MIT
#include "engine/cuda/nvtx.h"

#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>

namespace lockstep::engine {
namespace {

nvtxEventAttributes_t attributes() {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  return event;
}

nvtxEventAttributes_t named(Profiler::Name name) {
  nvtxEventAttributes_t event = attributes();
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  // Registering returned this handle as non-const.
  event.message.registered = static_cast<nvtxStringHandle_t>(const_cast<void*>(name.handle));
  return event;
}

class Nvtx : public Profiler {
 public:
  explicit Nvtx(nvtxDomainHandle_t domain) : domain_(domain) {}
  ~Nvtx() override { nvtxDomainDestroy(domain_); }
  Nvtx(const Nvtx&) = delete;
  Nvtx& operator=(const Nvtx&) = delete;

  Name name(const std::string& text) override {
    std::scoped_lock lock(mutex_);
    const auto [at, fresh] = names_.try_emplace(text);
    if (fresh) at->second.handle = nvtxDomainRegisterStringA(domain_, text.c_str());
    return at->second;
  }
  void push(Name name) override {
    const nvtxEventAttributes_t event = named(name);
    nvtxDomainRangePushEx(domain_, &event);
  }
  void push(const char* text) override {
    nvtxEventAttributes_t event = attributes();
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = text;
    nvtxDomainRangePushEx(domain_, &event);
  }
  void pop() override { nvtxDomainRangePop(domain_); }
  std::uint64_t start(Name name) override {
    const nvtxEventAttributes_t event = named(name);
    return nvtxDomainRangeStartEx(domain_, &event);
  }
  void end(std::uint64_t range) override { nvtxDomainRangeEnd(domain_, range); }

 private:
  nvtxDomainHandle_t domain_;
  std::mutex mutex_;
  std::map<std::string, Name> names_;
};

}  // namespace

std::unique_ptr<Profiler> nvtx_profiler() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("lockstep");
  if (domain == nullptr) return nullptr;
  return std::make_unique<Nvtx>(domain);
}

}  // namespace lockstep::engine
