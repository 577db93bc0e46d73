// SPDX-License-Identifier: MIT
#include "models/registry.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "models/lenet5.h"
#include "models/mlp.h"
#include "models/mnist_cnn.h"
#include "models/resnet.h"
#include "models/wide_deep.h"

namespace lockstep::models {
namespace {

// A model without batch norm has no statistics to synchronise.
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

// How many letters must be put in, taken out or changed to make `b` of `a` (Levenshtein): row i
// holds the distances of the first i letters of a to all beginnings of b.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t(0));
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

engine::GraphSpec build(std::string_view name, BuildOptions options) {
  for (const Entry& entry : kModels) {
    if (entry.name != name) continue;
    engine::require(!options.synchronised || entry.build_with != nullptr,
                    "model {} has no batch norm whose statistics could be synchronised", name);
    return options.synchronised ? entry.build_with({.synchronised = true}) : entry.build();
  }
  const Entry& nearest =
      *std::min_element(kModels.begin(), kModels.end(), [&](const Entry& a, const Entry& b) {
        return distance(name, a.name) < distance(name, b.name);
      });
  const bool near = distance(name, nearest.name) <= std::max<std::size_t>(2, name.size() / 3);
  engine::fail(engine::Code::kInvalid, "unknown model '{}'{}; known: {}", engine::brief(name),
               near ? fmt::format("; did you mean {}?", nearest.name) : std::string(), list());
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
