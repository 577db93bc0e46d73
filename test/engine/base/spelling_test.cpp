// SPDX-License-Identifier: MIT
#include "engine/base/spelling.h"

#include <gtest/gtest.h>

namespace lockstep::engine {
namespace spelling_test {

const std::vector<std::string> kNames{"model", "rate",         "lr",        "epochs",
                                      "steps", "weight-decay", "decay-all", "checkpoints"};

TEST(Spelling, FindsTheNameThatWasMeant) {
  const std::pair<const char*, const char*> cases[] = {{"modle", "model"},
                                                       {"Model", "model"},
                                                       {"mdoel", "model"},
                                                       {"epoch", "epochs"},
                                                       {"num_epochs", "epochs"},
                                                       {"weight_decay", "weight-decay"},
                                                       {"rat", "rate"},
                                                       {"lrr", "lr"},
                                                       {"check", "checkpoints"},
                                                       {"all", "decay-all"},
                                                       {"steps-per-run", "steps"},
                                                       {"weightdecay", "weight-decay"}};
  for (const auto& [name, meant] : cases) EXPECT_EQ(nearest(name, kNames), meant) << name;
}

TEST(Spelling, GuessesNothingFromNamesThatAreUnlikeAll) {
  for (const char* name : {"", "x", "qq", "bogus", "frobnicate"})
    EXPECT_EQ(did_you_mean(name, kNames), "") << name;
  EXPECT_EQ(did_you_mean(std::string(100000, 'm'), kNames), "");
  EXPECT_EQ(did_you_mean("modle", kNames), "; did you mean model?");
  EXPECT_EQ(known_names("rign", {"ring", "direct"}), "; did you mean ring? known: ring, direct");
  EXPECT_EQ(known_names("tree", {"ring", "direct"}), "; known: ring, direct");
}

}  // namespace spelling_test
}  // namespace lockstep::engine
