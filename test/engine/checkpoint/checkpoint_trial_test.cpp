// SPDX-License-Identifier: MIT
// Tests the trial of a checkpoint folder before a run, and the abandonment of a failed save.
// Neither leaves anything behind or touches existing files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "test/engine/checkpoint/fault_storage.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace checkpoint_trial_test {

using engine::Checkpoints;
using engine::Code;
using engine::Error;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using When = FaultStorage::When;

const std::string kOne = "step-0000000001";

class CheckpointTrial : public testing::Test {
 protected:
  CheckpointTrial() {
    std::mt19937_64 random(1);
    Checkpoints checkpoints(storage_, "runs", 1, lines_.log());
    save(checkpoints, 1, tiny_arrays(1), 1, random);
  }
  LogLines lines_;
  MemoryStorage storage_;
};

TEST_F(CheckpointTrial, LeavesNothing) {
  Checkpoints(storage_, "new/folder", 1, lines_.log()).prepare();
  EXPECT_TRUE(storage_.exists("new/folder"));
  EXPECT_THAT(storage_.list("new/folder"), IsEmpty());
  Checkpoints(storage_, "runs", 1, lines_.log()).prepare();
  EXPECT_THAT(storage_.list("runs"), ElementsAre(kOne));
}

TEST_F(CheckpointTrial, FailsWhereAnyCallFails) {
  for (const bool stays : {false, true}) {
    for (const When when : {When::kBefore, When::kHalf, When::kAfter}) {
      int calls = 0;
      for (;; ++calls) {
        const auto storage = storage_.copy();
        FaultStorage faulty(*storage, calls, when, FaultStorage::no_space, stays);
        Checkpoints checkpoints(faulty, "runs", 1, lines_.log());
        try {
          checkpoints.prepare();
          if (faulty.calls() <= calls) break;
          ADD_FAILURE() << "call " << calls << " failed, and nobody said so";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::kIo);
          EXPECT_THAT(error.what(), HasSubstr("no checkpoint could be written: "));
          EXPECT_THAT(error.what(), HasSubstr("No space left"));
          EXPECT_THAT(error.what(), HasSubstr("give a folder that can be written"));
        }
        if (!stays) {
          EXPECT_THAT(storage->list("runs"), ElementsAre(kOne)) << calls;
        }
        EXPECT_EQ(Checkpoints(*storage, "runs", 1, lines_.log()).newest_whole(), 1);
      }
      EXPECT_GE(calls, 4);
    }
  }
}

TEST_F(CheckpointTrial, AnAbandonedStepLeavesNothingButTheOneBefore) {
  Checkpoints checkpoints(storage_, "runs", 1, lines_.log());
  Arrays arrays = tiny_arrays(2);
  checkpoints.begin(2);
  checkpoints.write_shard(2, 0, 2, whole_pieces(arrays));
  EXPECT_EQ(storage_.list("runs").size(), 2u);
  checkpoints.abandon(2);
  EXPECT_THAT(storage_.list("runs"), ElementsAre(kOne));
  checkpoints.abandon(2);
  checkpoints.abandon(1);  // a whole checkpoint stays
  EXPECT_THAT(storage_.list("runs"), ElementsAre(kOne));
  EXPECT_EQ(checkpoints.newest_whole(), 1);
}

TEST_F(CheckpointTrial, ADiskThatRefusesToForgetIsLeftToTheNextSave) {
  Arrays arrays = tiny_arrays(2);
  Checkpoints(storage_, "runs", 1, lines_.log()).begin(2);
  FaultStorage faulty(storage_, 0, When::kBefore, FaultStorage::no_space, true);
  Checkpoints(faulty, "runs", 1, lines_.log()).abandon(2);  // throws nothing
  EXPECT_EQ(storage_.list("runs").size(), 2u);
  std::mt19937_64 random(1);
  Checkpoints checkpoints(storage_, "runs", 1, lines_.log());
  save(checkpoints, 3, arrays, 1, random);
  EXPECT_THAT(storage_.list("runs"), ElementsAre("step-0000000003"));
}

}  // namespace checkpoint_trial_test
}  // namespace lockstep::test
