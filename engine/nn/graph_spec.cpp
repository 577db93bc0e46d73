// SPDX-License-Identifier: MIT
#include "engine/nn/graph_spec.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

// Returns "convolution conv2": the first word of the layer's description, and its name.
std::string title(const Layer& layer, const std::string& name) {
  const std::string text = layer.describe();
  return text.substr(0, text.find_first_of(" ,")) + " " + name;
}

std::string initial_text(const Initial& initial) {
  switch (initial.kind) {
    case Initial::Kind::kConstant:
      return fmt::format("constant {}", initial.value);
    case Initial::Kind::kUniform:
      return fmt::format("uniform {}", initial.value);
    case Initial::Kind::kGlorotUniform:
      return fmt::format("glorot {}+{}", initial.fan_in, initial.fan_out);
    case Initial::Kind::kHeNormal:
      return fmt::format("he {}", initial.fan_in);
  }
  broken("a start value without a description");
}

}  // namespace

GraphSpec::Value GraphSpec::add(std::string name, std::shared_ptr<const Layer> layer,
                                std::vector<Value> inputs) {
  require(layer != nullptr, "layer {}: nothing was given; make one, e.g. dense(10)", name);
  require(!name.empty(), "a layer of model {} has no name", name_);
  require(std::none_of(nodes_.begin(), nodes_.end(), [&](const Node& n) { return n.name == name; }),
          "model {} has two layers named {}; names must differ", name_, name);
  require(!inputs.empty(), "{}: has no input", title(*layer, name));
  std::vector<Shape> shapes;
  for (Value value : inputs) {
    require(value.index <= nodes_.size(),
            "{}: takes the output of layer number {}, but there are {}", title(*layer, name),
            value.index, nodes_.size());
    shapes.push_back(shape(value));
  }
  Shape output;
  try {
    output = layer->output_shape(shapes);
  } catch (const Error& error) {
    throw Error(error.code(), title(*layer, name) + ": " + error.what());
  }
  std::set<std::string_view> names;
  const std::vector<ParameterSpec> parameters = layer->parameters(shapes);
  for (const ParameterSpec& parameter : parameters)
    require(names.insert(parameter.name).second, "{}: has two parameters named {}",
            title(*layer, name), parameter.name);
  require(output.rank() < Shape::kMaxRank && output.elements() > 0,
          "{}: makes {}; an output has one to three extents, none of them zero",
          title(*layer, name), to_string(output));
  nodes_.push_back({std::move(name), std::move(layer), std::move(inputs), block_});
  shapes_.push_back(output);
  return {nodes_.size()};
}

GraphSpec::Value GraphSpec::add(std::string name, std::shared_ptr<const Layer> layer, Value input) {
  return add(std::move(name), std::move(layer), std::vector<Value>{input});
}

GraphSpec::Value GraphSpec::then(std::string name, std::shared_ptr<const Layer> layer) {
  return add(std::move(name), std::move(layer), Value{nodes_.size()});
}

void GraphSpec::set_loss(std::shared_ptr<const Loss> loss) {
  require(loss != nullptr, "model {}: no loss was given", name_);
  loss->target_columns(output_shape());
  loss_ = std::move(loss);
}

void GraphSpec::freeze(const std::string& prefix) {
  std::string known;
  for (const Node& node : nodes_) {
    std::vector<Shape> shapes;
    for (Value value : node.inputs) shapes.push_back(shape(value));
    for (const ParameterSpec& parameter : node.layer->parameters(shapes)) {
      const std::string full = node.name + "." + parameter.name;
      if (full.starts_with(prefix)) {
        frozen_.push_back(prefix);
        return;
      }
      known += (known.empty() ? "" : ", ") + full;
    }
  }
  fail(Code::kInvalid, "no parameter of model {} begins with '{}'; there are: {}", name_, prefix,
       known.empty() ? "none" : known);
}

const Shape& GraphSpec::output_shape() const {
  return shapes_.empty() ? input_ : shapes_.back();
}

Shape GraphSpec::shape(Value value) const {
  require(value.index <= shapes_.size(), "model {} has no value number {}", name_, value.index);
  return value.index == 0 ? input_ : shapes_[value.index - 1];
}

std::shared_ptr<const Loss> GraphSpec::shared_loss() const {
  require(loss_ != nullptr,
          "model {} has no loss; call set_loss, e.g. with softmax_cross_entropy()", name_);
  return loss_;
}

bool GraphSpec::frozen(const std::string& parameter) const {
  return std::any_of(frozen_.begin(), frozen_.end(),
                     [&](const std::string& prefix) { return parameter.starts_with(prefix); });
}

std::size_t GraphSpec::target_columns() const {
  return loss().target_columns(output_shape());
}

std::string GraphSpec::describe() const {
  std::string text = fmt::format("model {}: input {}\n", name_, to_string(input_));
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    std::vector<Shape> shapes;
    std::string from;
    for (Value value : node.inputs) {
      shapes.push_back(shape(value));
      from += fmt::format("{}{} {}", from.empty() ? "" : ", ",
                          value.index == 0 ? "input" : nodes_[value.index - 1].name,
                          to_string(shapes.back()));
    }
    text += fmt::format("{}: {}; {} -> {}", node.name, node.layer->describe(), from,
                        to_string(shapes_[i]));
    for (const ParameterSpec& parameter : node.layer->parameters(shapes)) {
      text += fmt::format("; {} {} ({}){}", parameter.name, to_string(parameter.shape),
                          initial_text(parameter.initial),
                          frozen(node.name + "." + parameter.name) ? ", frozen" : "");
    }
    for (const ReductionSpec& reduction : node.layer->reductions(shapes)) {
      text += fmt::format("; sums {} over replicas ({})", reduction.name, reduction.count);
    }
    text += "\n";
  }
  return text + "loss: " + (loss_ ? loss_->describe() : "none") + "\n";
}

}  // namespace lockstep::engine
