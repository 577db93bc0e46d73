// SPDX-License-Identifier: MIT
#include "engine/device/device.h"

#include <charconv>
#include <string_view>

#include "engine/base/error.h"

namespace lockstep::engine {

std::string to_string(const DeviceId& id) {
  return fmt::format("{}:{}", id.kind, id.index);
}

DeviceId parse_device_id(const std::string& text) {
  const std::size_t colon = text.find(':');
  DeviceId id{text.substr(0, colon), 0};
  bool good = !id.kind.empty();
  if (colon != std::string::npos) {
    const std::string_view number = std::string_view(text).substr(colon + 1);
    const char* end = number.data() + number.size();
    const auto [rest, error] = std::from_chars(number.data(), end, id.index);
    good = good && error == std::errc() && rest == end && id.index >= 0;
  }
  require(good, "'{}' is not a device; a device is written as kind:index, such as cpu:0", text);
  return id;
}

std::string_view name(Kernels kernels) {
  return kernels == Kernels::kAuto ? "auto" : "direct";
}

Kernels kernels_of(std::string_view name) {
  if (name == "auto") return Kernels::kAuto;
  require(name == "direct", "there are no '{}' kernels; known: auto, direct", name);
  return Kernels::kDirect;
}

}  // namespace lockstep::engine
