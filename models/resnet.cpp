// SPDX-License-Identifier: MIT
#include "models/resnet.h"

#include <fmt/core.h>

#include "engine/nn/layers.h"

namespace lockstep::models {
namespace {

using engine::GraphSpec;
using Value = GraphSpec::Value;

// Builds a graph of convolutions with batch norms.
class Builder {
 public:
  Builder(std::string name, engine::Shape input, ResnetOptions options)
      : graph_(std::move(name), input), options_(options) {}

  Value normalised(const std::string& convolution, const std::string& norm, Value from,
                   std::size_t filters, std::size_t kernel, std::size_t stride) {
    const Value value =
        graph_.add(convolution,
                   engine::convolution(filters, kernel,
                                       {.stride = stride, .padding = kernel / 2, .bias = false}),
                   from);
    return graph_.add(norm, engine::batch_norm({.synchronised = options_.synchronised}), value);
  }

  Value relu(const std::string& name, Value from) { return graph_.add(name, engine::relu(), from); }

  struct Part {
    std::size_t filters, kernel, stride;
  };
  // Adds a block: the parts in sequence with ReLU between them, and the shortcut.
  Value block(const std::string& name, Value from, const std::vector<Part>& parts) {
    graph_.begin_block();
    const std::size_t channels = graph_.shape(from)[2], filters = parts.back().filters;
    std::size_t stride = 1;
    Value main = from;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& [width, kernel, step] = parts[i];
      if (i > 0) main = relu(fmt::format("{}.relu{}", name, i), main);
      main = normalised(fmt::format("{}.conv{}", name, i + 1), fmt::format("{}.bn{}", name, i + 1),
                        main, width, kernel, step);
      stride *= step;
    }
    Value shortcut = from;
    if (stride != 1 || channels != filters) {
      shortcut = normalised(name + ".shortcut", name + ".shortcut_bn", from, filters, 1, stride);
    }
    const Value sum = graph_.add(name + ".add", engine::add(), {main, shortcut});
    const Value out = relu(name + ".relu", sum);
    graph_.end_block();
    return out;
  }

  GraphSpec classifier(Value from, std::size_t classes) {
    graph_.add("pool_all", engine::global_average_pool(), from);
    graph_.then("fc", engine::dense(classes));
    graph_.set_loss(engine::softmax_cross_entropy());
    return std::move(graph_);
  }
  GraphSpec& graph() { return graph_; }

 private:
  GraphSpec graph_;
  ResnetOptions options_;
};

std::string block_name(std::size_t stage, std::size_t block) {
  return fmt::format("stage{}.block{}", stage + 1, block + 1);
}

}  // namespace

GraphSpec resnet20(ResnetOptions options) {
  Builder net("resnet20", {32, 32, 3}, options);
  Value value = net.relu("relu1", net.normalised("conv1", "bn1", net.graph().input(), 16, 3, 1));
  for (std::size_t stage = 0; stage < 3; ++stage) {
    const std::size_t filters = std::size_t(16) << stage;
    for (std::size_t block = 0; block < 3; ++block) {
      const std::size_t stride = stage > 0 && block == 0 ? 2 : 1;
      value = net.block(block_name(stage, block), value, {{filters, 3, stride}, {filters, 3, 1}});
    }
  }
  return net.classifier(value, 10);
}

GraphSpec resnet50(ResnetOptions options) {
  constexpr std::size_t kBlocks[] = {3, 4, 6, 3};
  Builder net("resnet50", {224, 224, 3}, options);
  Value value = net.relu("relu1", net.normalised("conv1", "bn1", net.graph().input(), 64, 7, 2));
  value = net.graph().add("pool", engine::max_pool(3, {.stride = 2, .padding = 1}), value);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    const std::size_t width = std::size_t(64) << stage;
    for (std::size_t block = 0; block < kBlocks[stage]; ++block) {
      const std::size_t stride = stage > 0 && block == 0 ? 2 : 1;
      value = net.block(block_name(stage, block), value,
                        {{width, 1, 1}, {width, 3, stride}, {4 * width, 1, 1}});
    }
  }
  return net.classifier(value, 1000);
}

}  // namespace lockstep::models
