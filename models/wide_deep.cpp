// SPDX-License-Identifier: MIT
#include "models/wide_deep.h"

#include <utility>

#include "engine/nn/layers.h"

namespace lockstep::models {
namespace {

constexpr std::size_t kNumbers = 13, kFields = 26;

engine::GraphSpec wide_deep_graph(std::string name, const WideDeepOptions& options) {
  engine::GraphSpec graph(std::move(name), {kNumbers + kFields});
  const auto input = graph.input();
  const auto numbers = graph.add("numbers", engine::columns(0, kNumbers), input);

  engine::EmbeddingOptions ids{.first = kNumbers, .fields = kFields};
  const auto embedded =
      graph.add("deep_ids", engine::embedding(options.buckets, options.columns, ids), input);
  graph.add("all", engine::concatenate(), {numbers, embedded});
  graph.then("deep1", engine::dense(256));
  graph.then("relu1", engine::relu());
  graph.then("deep2", engine::dense(128));
  graph.then("relu2", engine::relu());
  graph.then("deep3", engine::dense(64));
  graph.then("relu3", engine::relu());
  const auto deep = graph.then("deep_logits", engine::dense(2));

  // The wide part has a weight per ID and class, initialized to zero.
  ids.sum = true;
  ids.limit = 0;
  const auto by_ids = graph.add("wide_ids", engine::embedding(options.buckets, 2, ids), input);
  const auto by_numbers = graph.add("wide_numbers", engine::dense(2, {.bias = false}), numbers);
  const auto wide = graph.add("wide", engine::add(), {by_ids, by_numbers});
  graph.add("logits", engine::add(), {deep, wide});
  graph.set_loss(engine::softmax_cross_entropy());
  return graph;
}

}  // namespace

engine::GraphSpec wide_deep(const WideDeepOptions& options) {
  return wide_deep_graph("wide_deep", options);
}
engine::GraphSpec wide_deep() {
  return wide_deep_graph("wide_deep", {});
}
engine::GraphSpec wide_deep_10m() {
  return wide_deep_graph("wide_deep_10m", {.buckets = 384616});
}

}  // namespace lockstep::models
