// SPDX-License-Identifier: MIT
// Tests the report of a difference between two models. An option appears with its name and both
// values, in the right order; anything else appears with its first line.
#include "engine/checkpoint/model_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/nn/graph_spec.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"

namespace lockstep::test {
namespace model_difference_test {

using engine::model_difference;
using testing::HasSubstr;

struct Made {
  double smoothing = 0;
  bool synchronised = false;
  std::size_t width = 4;
};

std::string described(const Made& made) {
  engine::GraphSpec graph("made", {8});
  graph.then("dense1", engine::dense(made.width));
  graph.then("norm", engine::batch_norm({.synchronised = made.synchronised}));
  graph.then("dense2", engine::dense(3));
  graph.set_loss(engine::softmax_cross_entropy({.smoothing = made.smoothing}));
  return graph.describe();
}

TEST(ModelDifference, OfAnOptionIsItsNameAndBothValues) {
  struct Case {
    Made there, here;
    std::string text, remedy;
  };
  for (const Case& c :
       {Case{{}, {.smoothing = 0.1}, "label smoothing 0 there, 0.1 here", "label smoothing 0"},
        Case{{.smoothing = 0.1}, {}, "label smoothing 0.1 there, 0 here", "label smoothing 0.1"},
        Case{{.smoothing = 0.1},
             {.smoothing = 0.25},
             "label smoothing 0.1 there, 0.25 here",
             "label smoothing 0.1"},
        Case{{},
             {.synchronised = true},
             "batch norm local there, synchronised here",
             "batch norm local"},
        Case{{.synchronised = true},
             {},
             "batch norm synchronised there, local here",
             "batch norm synchronised"}}) {
    const engine::ModelDifference found = model_difference(described(c.there), described(c.here));
    EXPECT_EQ(found.text, c.text);
    EXPECT_EQ(found.remedy, c.remedy);
  }
}

TEST(ModelDifference, OfAnythingElseIsTheFirstLine) {
  const auto found = model_difference(described({}), described({.synchronised = true, .width = 5}));
  EXPECT_THAT(found.text, HasSubstr("'dense1: dense"));
  EXPECT_EQ(found.remedy, "");
  const std::string focal = "loss: softmax_cross_entropy_focal 2\n";
  EXPECT_EQ(model_difference("loss: softmax_cross_entropy\n", focal).remedy, "");
  const std::string norm = "norm: batch_norm, synchronised; sums a\n";
  EXPECT_EQ(model_difference(norm, "norm: batch_norm, synchronised; sums b\n").remedy, "");
  const std::string text = described({});
  EXPECT_EQ(model_difference(text, text + "more\n").text, "'(nothing)' there, 'more' here");
  EXPECT_EQ(model_difference(text, text).text, "nothing");
}

}  // namespace model_difference_test
}  // namespace lockstep::test
