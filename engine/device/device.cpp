// SPDX-License-Identifier: MIT
#include "engine/device/device.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>
#include <utility>

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

namespace {

constexpr std::pair<Kernels, std::string_view> kKernels[] = {
    {Kernels::kAuto, "auto"}, {Kernels::kDirect, "direct"}, {Kernels::kWinograd, "winograd"}};

}  // namespace

std::string_view name(Kernels kernels) {
  return kKernels[std::size_t(kernels)].second;
}

Kernels kernels_of(std::string_view name) {
  const auto found =
      std::ranges::find(kKernels, name, &std::pair<Kernels, std::string_view>::second);
  require(found != std::end(kKernels), "there are no '{}' kernels; known: auto, direct, winograd",
          name);
  return found->first;
}

}  // namespace lockstep::engine
