// SPDX-License-Identifier: MIT
#include "models/registry.h"

#include <array>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/spelling.h"
#include "models/lenet5.h"
#include "models/mlp.h"
#include "models/mnist_cnn.h"
#include "models/resnet.h"
#include "models/wide_deep.h"

namespace lockstep::models {
namespace {

// Describes a model. `build_with` is null without batch norm, whose statistics could be
// synchronized.
struct Entry {
  std::string_view name;
  engine::GraphSpec (*build)();
  engine::GraphSpec (*build_with)(ResnetOptions) = nullptr;
};
constexpr std::array<Entry, 8> kModels{{
    {"lenet5", lenet5},
    {"mlp", mlp},
    {"mlp_wide", mlp_wide},
    {"mnist_cnn", mnist_cnn},
    {"resnet20", [] { return resnet20(); }, resnet20},
    {"resnet50", [] { return resnet50(); }, resnet50},
    {"wide_deep", wide_deep},
    {"wide_deep_10m", wide_deep_10m},
}};

}  // namespace

engine::GraphSpec build(std::string_view name) {
  return build(name, BuildOptions());
}

engine::GraphSpec build(std::string_view name, BuildOptions options) {
  for (const Entry& entry : kModels) {
    if (entry.name != name) continue;
    engine::require(!options.synchronised || entry.build_with != nullptr,
                    "model {} has no batch norm whose statistics could be synchronised", name);
    return options.synchronised ? entry.build_with({.synchronised = true}) : entry.build();
  }
  engine::fail(engine::Code::kInvalid, "unknown model '{}'{}", engine::brief(name),
               engine::known_names(name, names()));
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Entry& entry : kModels) all.emplace_back(entry.name);
  return all;
}

std::string list() {
  std::string text;
  for (const Entry& entry : kModels) {
    text += (text.empty() ? "" : ", ");
    text += entry.name;
  }
  return text;
}

}  // namespace lockstep::models
