// SPDX-License-Identifier: MIT
#include "tools/data_choice.h"

#include "engine/base/error.h"

namespace lockstep::tools {
namespace {

constexpr std::uint64_t kExamples = 8000;

}  // namespace

engine::data::Sets choose_data(const DataChoice& choice, const engine::GraphSpec& graph) {
  engine::require(!choice.examples || choice.data.empty(),
                  "--examples {} is of the digits that the program draws, and --data {} gives "
                  "others: leave one of them out",
                  choice.examples.value_or(0), choice.data);
  if (choice.data.empty()) {
    engine::data::DigitsOptions options;
    options.train = choice.examples.value_or(kExamples);
    return engine::data::generated_digits(options);
  }
  if (choice.data == "random") {
    return engine::data::random_images(graph.input_shape(), graph.output_shape().elements(),
                                       choice.batch, choice.seed);
  }
  return engine::data::idx(choice.data, graph.output_shape().elements());
}

}  // namespace lockstep::tools
