// SPDX-License-Identifier: MIT
#include "tools/bench/gradients.h"

#include <algorithm>

namespace lockstep::tools::bench {
namespace {

constexpr std::size_t kEqual = 64;

// Layers in forward order, each with the sizes of its gradients.
using Layers = std::vector<std::vector<std::size_t>>;

void add_convolution(Layers& layers, std::size_t kernel, std::size_t in, std::size_t out) {
  layers.push_back({kernel * kernel * in * out, out, out});  // kernel, scale and shift
}

Layers resnet50_layers() {
  Layers layers;
  add_convolution(layers, 7, 3, 64);
  std::size_t in = 64;
  constexpr std::size_t kBlocks[] = {3, 4, 6, 3};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::size_t width = std::size_t(64) << stage, out = 4 * width;
    for (std::size_t block = 0; block < kBlocks[stage]; ++block) {
      if (block == 0) add_convolution(layers, 1, in, out);  // projection shortcut
      add_convolution(layers, 1, in, width);
      add_convolution(layers, 3, width, width);
      add_convolution(layers, 1, width, out);
      in = out;
    }
  }
  layers.push_back({in * 1000, 1000});
  return layers;
}

}  // namespace

std::vector<Gradient> resnet50_gradients() {
  const Layers layers = resnet50_layers();
  std::vector<Gradient> gradients;
  for (std::size_t back = 1; back <= layers.size(); ++back) {
    const auto& layer = layers[layers.size() - back];
    for (auto elements = layer.rbegin(); elements != layer.rend(); ++elements)
      gradients.push_back({*elements, double(back) / double(layers.size())});
  }
  return gradients;
}

std::vector<Gradient> equal_gradients(std::size_t elements) {
  const std::size_t parts = std::min(elements, kEqual);
  std::vector<Gradient> gradients;
  for (std::size_t part = 0; part < parts; ++part) {
    gradients.push_back({elements * (part + 1) / parts - elements * part / parts,
                         double(part + 1) / double(parts)});
  }
  return gradients;
}

std::vector<Gradient> in_buckets(const std::vector<Gradient>& gradients, std::size_t elements) {
  std::vector<Gradient> buckets;
  Gradient open{0, 0};
  for (Gradient left : gradients) {
    while (left.elements > 0) {
      const std::size_t part = std::min(left.elements, elements - open.elements);
      open.elements += part, left.elements -= part;
      open.ready = left.ready;
      if (open.elements < elements) continue;
      buckets.push_back(open);
      open = {0, 0};
    }
  }
  if (open.elements > 0) buckets.push_back(open);
  return buckets;
}

}  // namespace lockstep::tools::bench
