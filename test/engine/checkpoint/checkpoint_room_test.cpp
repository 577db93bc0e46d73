// SPDX-License-Identifier: MIT
// Tests that a run checks the space for its checkpoints before its first step. If it starts, all of
// its saves fit. If it is refused and the error names a smaller number to keep, that number fits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace checkpoint_room_test {

using engine::Checkpoints;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kBytes = 1 << 16;  // of the array; the other files are small

Arrays large_arrays() {
  Arrays arrays = tiny_arrays(1);
  arrays[0].shape = {kBytes / sizeof(float)};
  arrays[0].bytes.assign(kBytes, std::byte{1});
  return arrays;
}

class CheckpointRoom : public testing::Test {
 protected:
  // Saves steps 1 to `count`, all kept, then limits the disk to `room` checkpoints in total.
  void begin(int count, double room) {
    storage_.emplace();
    std::mt19937_64 random(1);
    Checkpoints checkpoints(*storage_, "runs", 100, lines_.log());
    for (int step = 1; step <= count; ++step) save(checkpoints, step, large_arrays(), 1, random);
    storage_->make_folder("runs");
    storage_->limit(std::uint64_t(room * double(kBytes)));
  }
  // Runs from the newest checkpoint. Returns the error if the run is refused.
  std::optional<std::string> run(int saves, int keep) {
    std::mt19937_64 random(1);
    Checkpoints checkpoints(*storage_, "runs", keep, lines_.log());
    const std::int64_t first = checkpoints.newest_whole().value_or(0);
    try {
      checkpoints.prepare(kBytes, saves);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo);
      return error.what();
    }
    for (int i = 1; i <= saves; ++i) {
      save(checkpoints, first + i, large_arrays(), 1, random);
      EXPECT_EQ(checkpoints.newest_whole(), first + i);
    }
    return std::nullopt;
  }
  LogLines lines_;
  std::optional<MemoryStorage> storage_;
};

TEST_F(CheckpointRoom, ARunThatBeginsCanSaveAndOneThatIsRefusedIsToldWhatCan) {
  int began = 0, refused = 0, told = 0;
  for (int count = 0; count <= 3; ++count) {
    for (int room = count; room <= 5; ++room) {
      for (const int saves : {1, 2, 5}) {
        for (int keep = 1; keep <= 4; ++keep) {
          SCOPED_TRACE(testing::Message() << count << " are there, room for " << room << ", "
                                          << saves << " saves, keep " << keep);
          begin(count, room + 0.5);
          const auto error = run(saves, keep);
          ASSERT_FALSE(HasFailure());
          if (!error) {
            ++began;
            continue;
          }
          ++refused;
          const std::size_t told_at = error->find(", or keep ");
          if (told_at == std::string::npos) {
            EXPECT_LT(room, 2);
            continue;
          }
          ++told;
          EXPECT_EQ(run(saves, std::stoi(error->substr(told_at + 10))), std::nullopt) << *error;
        }
      }
    }
  }
  EXPECT_GT(began, 50);
  EXPECT_GT(refused, 20);
  EXPECT_GT(told, 10);
}

TEST_F(CheckpointRoom, TheErrorSaysHowMuchThereIsAndHowMuchIsNeeded) {
  begin(2, 2.5);
  EXPECT_THAT(
      run(9, 3).value_or(""),
      AllOf(HasSubstr("no room for checkpoints in runs: "), HasSubstr(" are free, and 1 more of "),
            HasSubstr("to keep 3; make room, give a folder on another disk, or keep 2 at most")));
}

TEST_F(CheckpointRoom, WhatAKilledRunLeftTakesNone) {
  begin(1, 2.5);
  Checkpoints killed(*storage_, "runs", 1, lines_.log());
  Arrays arrays = large_arrays();
  killed.begin(2);
  killed.write_shard(2, 0, 1, whole_pieces(arrays));
  EXPECT_EQ(run(3, 1), std::nullopt);
  EXPECT_THAT(storage_->list("runs"), ElementsAre("step-0000000004"));
}

// The newest checkpoint has the right size but wrong bytes. The run resumes from the previous one,
// which must stay.
TEST_F(CheckpointRoom, TheOneThatTheRunCameFromStaysUntilThereIsAnother) {
  begin(3, 3.5);
  storage_->contents("runs/step-0000000003/shard-00000-of-00001.safetensors")[500] ^= std::byte{1};
  Checkpoints checkpoints(*storage_, "runs", 1, lines_.log());
  EXPECT_EQ(checkpoints.newest_whole(), 2);
  checkpoints.prepare(kBytes, 1);
  checkpoints.begin(4);
  EXPECT_EQ(checkpoints.newest_whole(), 2);
}

}  // namespace checkpoint_room_test
}  // namespace lockstep::test
