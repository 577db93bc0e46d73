// SPDX-License-Identifier: MIT
#include <array>
#include <limits>
#include <string>

#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

// Forward finds the picked rows once and keeps them for backward in the workspace. If rows are
// compact, the graph knows them already.
class Embedding final : public Layer {
 public:
  Embedding(std::size_t rows, std::size_t columns, EmbeddingOptions options)
      : rows_(rows), columns_(columns), options_(options) {}

  std::string describe() const override {
    return fmt::format(
        "embedding {}x{}, {} from {}{}", rows_, columns_,
        options_.fields == 0 ? std::string("fields") : fmt::format("{} fields", options_.fields),
        options_.first, options_.sum ? ", sum" : "");
  }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    const std::size_t all = inputs[0].elements(), first = options_.first;
    require(first < all && options_.fields <= all - first,
            "takes ids from columns {} on, {} of them, and its input has {}", first,
            options_.fields == 0 ? "at least 1" : std::to_string(options_.fields), all);
    const EmbeddingSpec s = spec(inputs);
    constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
    require(s.fields <= kMost / rows_, "{} fields of {} rows are more rows than {}", s.fields,
            rows_, kMost);
    return {s.outputs()};
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const Initial initial = options_.limit == 0 ? constant(0) : uniform_within(options_.limit);
    return {{"weight", {spec(inputs).fields * rows_, columns_}, initial, Group::kWeight, true}};
  }
  RowSource row_source(std::span<const Shape> inputs) const override {
    return {options_.first, spec(inputs).fields, rows_};
  }
  std::size_t workspace(Ops&, std::span<const Shape> inputs, std::size_t rows) const override {
    return rows * spec(inputs).fields * sizeof(std::uint32_t);
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    const std::array shapes{flat(a.x[0])};
    const std::uint32_t* places = a.places;
    if (places == nullptr) {
      auto* const found = reinterpret_cast<std::uint32_t*>(a.workspace);
      context.ops->embedding_rows(context.state, row_source(shapes), a.x[0], *a.name, found);
      places = found;
    }
    context.ops->embedding_forward(context.state, spec(shapes), places, a.w[0], a.y);
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    const auto* const found = reinterpret_cast<const std::uint32_t*>(a.workspace);
    const std::uint32_t* const places = a.places != nullptr ? a.places : found;
    context.ops->embedding_backward(context.state, spec(std::array{flat(a.x[0])}), places, a.dy,
                                    a.dw[0], a.accumulate);
    if (a.dx[0]) context.ops->clear(context.state, a.dx[0]);
  }

 private:
  static Shape flat(const Tensor& x) { return {x.columns()}; }
  EmbeddingSpec spec(std::span<const Shape> inputs) const {
    const std::size_t fields =
        options_.fields == 0 ? inputs[0].elements() - options_.first : options_.fields;
    return {fields, columns_, options_.sum};
  }
  std::size_t rows_, columns_;
  EmbeddingOptions options_;
};

}  // namespace

LayerPtr embedding(std::size_t rows, std::size_t columns, EmbeddingOptions options) {
  require(rows > 0 && rows <= RowSource::kMostRows,
          "embedding: {} rows for each field; 1 to {} can be, for ids are float32", rows,
          RowSource::kMostRows);
  require(columns > 0, "embedding: rows of 0 columns; at least 1 is needed");
  require(options.limit >= 0 && options.limit <= std::numeric_limits<float>::max(),
          "embedding: start values within +-{}; 0 or more can be", options.limit);
  return std::make_shared<Embedding>(rows, columns, options);
}

}  // namespace lockstep::engine
