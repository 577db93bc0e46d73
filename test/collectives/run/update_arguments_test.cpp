// SPDX-License-Identifier: MIT
// Kernel calls cover each element of an arena with unequal segments once. Each call is told of
// every element whether it decays.
#include "collectives/run/update_arguments.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/reference/reference_device.h"

namespace lockstep::collectives {
namespace update_arguments_test {

constexpr std::size_t kSegments = 200, kLength = 30;

Step update() {
  Step step;
  step.action = Action::kReduce;
  step.epilogue = Epilogue::kUpdate;
  return step;
}

// Returns whether the element's segment decays. Every third one does, so that some neighbors are
// alike.
bool decays(std::size_t element) {
  return element / kLength % 3 == 0;
}

struct Calls {
  std::size_t count = 0, wrong = 0;
};

// Goes through the arena as an executor does, with budgets of `budget` elements.
Calls calls(bool joins, std::size_t budget) {
  const auto ops = engine::reference_device()->ops(DType::kFloat32, {});
  engine::Buffer control(Team::control_bytes(1, 1));
  const Team team({0}, 1, control.data());
  engine::UpdateRule rule;
  OwnedState owned;
  owned.rule = &rule;
  for (std::size_t s = 0; s < kSegments; ++s)
    owned.segments.push_back({.end = (s + 1) * kLength, .decays = decays(s * kLength)});
  UpdateArguments updates(0, team, *ops, owned);
  Calls found;
  for (std::size_t at = 0; at < kSegments * kLength; ++found.count) {
    engine::ReduceArguments arguments;
    arguments.epilogue = Epilogue::kUpdate;
    arguments.count = std::min(budget, kSegments * kLength - at);
    const std::size_t segment = updates.cut(update(), at, joins, arguments);
    updates.add_segment(segment, at, arguments);
    EXPECT_GT(arguments.count, 0u);
    EXPECT_LE(arguments.update.boundaries.size(), engine::kMostBoundaries);
    std::size_t boundary = 0;
    bool told = arguments.update.decays;
    for (std::size_t i = 0; i < arguments.count; ++i) {
      for (; boundary < arguments.update.boundaries.size() &&
             arguments.update.boundaries[boundary] == i;
           ++boundary)
        told = !told;
      found.wrong += told != decays(at + i);
    }
    at += arguments.count;
  }
  return found;
}

TEST(UpdateArguments, ACallIsAboutOneSegment) {
  const Calls found = calls(false, 1000);
  EXPECT_EQ(found.wrong, 0u);
  EXPECT_GE(found.count, kSegments);
  EXPECT_LE(found.count, kSegments + kSegments * kLength / 1000);
}

TEST(UpdateArguments, ACallOnADeviceGoesOnWhereDecayChanges) {
  for (const std::size_t budget : {std::size_t(70), kSegments * kLength}) {
    const Calls found = calls(true, budget);
    EXPECT_EQ(found.wrong, 0u) << budget;
    EXPECT_LT(found.count, kSegments) << budget;
  }
  EXPECT_GT(calls(true, kSegments * kLength).count, 1u) << "a call is told of so many boundaries";
}

}  // namespace update_arguments_test
}  // namespace lockstep::collectives
