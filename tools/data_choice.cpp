// SPDX-License-Identifier: MIT
#include "tools/data_choice.h"

namespace lockstep::tools {

engine::data::Sets choose_data(const DataChoice& choice, const engine::GraphSpec& graph) {
  if (choice.data.empty()) {
    engine::data::DigitsOptions options;
    options.train = choice.examples;
    return engine::data::generated_digits(options);
  }
  if (choice.data == "random") {
    return engine::data::random_images(graph.input_shape(), graph.output_shape().elements(),
                                       choice.batch, choice.seed);
  }
  return engine::data::idx(choice.data, graph.output_shape().elements());
}

}  // namespace lockstep::tools
