// SPDX-License-Identifier: MIT
#include "engine/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "engine/base/error.h"
#include "engine/checkpoint/manifest.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace checkpoint_test {

using engine::Checkpoints;
using engine::Code;
using engine::DType;
using engine::Error;
using engine::Log;
using engine::Piece;
using engine::RunState;
using engine::Shard;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Returns the error of a call as "code: text"; "none" if there is no error.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(engine::name(error.code())) + ": " + error.what();
  }
  return "none";
}

RunState state_at(std::int64_t step) {
  RunState state;
  state.step = step;
  return state;
}

class CheckpointTest : public testing::Test {
 protected:
  Checkpoints keeping(int keep) { return Checkpoints(storage_, "runs/digits", keep, lines_.log()); }
  MemoryStorage storage_;
  LogLines lines_;
  std::mt19937_64 random_{7};
};

TEST_F(CheckpointTest, AnySlicingIsRestoredByAnyOther) {
  for (std::int64_t step = 0; step < 60; ++step) {
    Checkpoints checkpoints = keeping(2);
    const Arrays saved = some_arrays(std::uint64_t(step));
    save(checkpoints, step, saved, 1 + int(random_() % 8), random_);
    ASSERT_EQ(checkpoints.newest_whole(), step) << lines_.all();
    Arrays arrays = zeros_like(saved);
    const int ranks = 1 + int(random_() % 8);
    for (const auto& mine : slice(arrays, ranks, random_)) checkpoints.restore(step, mine);
    ASSERT_TRUE(same(arrays, saved)) << "step " << step << ", restored by " << ranks;
  }
}

TEST_F(CheckpointTest, RanksMayReadTheSameOverlappingParts) {
  Checkpoints checkpoints = keeping(1);
  Arrays saved = some_arrays(1);
  save(checkpoints, 3, saved, 4, random_);
  std::vector<float> part(20);
  const Piece piece{saved[0].name,
                    saved[0].shape,
                    DType::kFloat32,
                    {5, 25},
                    reinterpret_cast<std::byte*>(part.data())};
  for (int rank = 0; rank < 2; ++rank) checkpoints.restore(3, {&piece, 1});
  EXPECT_TRUE(std::equal(saved[0].bytes.begin() + 20, saved[0].bytes.begin() + 100,
                         reinterpret_cast<std::byte*>(part.data())));
}

TEST_F(CheckpointTest, TheStateComesBackAsItWas) {
  Checkpoints checkpoints = keeping(1);
  RunState state;
  state.step = 42;
  state.steps = 1000;
  state.position = {3, 17};
  state.seed = ~std::uint64_t{0};
  state.global_batch = 64;
  state.dataset = "digits \xc3\xa9, \"60000\"\n";
  state.dataset_fingerprint = 0x0123456789abcdef;
  state.graph = "conv 5x5";
  state.model = "mnist_cnn";
  state.optimizer = "sgd";
  state.strategy = "mirrored";
  state.replicas = 4;
  state.plan = R"({"algorithm": "direct", "buckets": [0, 4096]})";
  state.notes = {{"a", "b"}, {"", "c"}};
  Arrays arrays = some_arrays(1);
  checkpoints.begin(42);
  const Shard shard = checkpoints.write_shard(42, 0, 1, whole_pieces(arrays));
  checkpoints.commit(state, {&shard, 1});
  const RunState back = checkpoints.read_state(42);
  EXPECT_EQ(back.step, state.step);
  EXPECT_EQ(back.steps, state.steps);
  EXPECT_EQ(back.position, state.position);
  EXPECT_EQ(back.seed, state.seed);
  EXPECT_EQ(back.global_batch, state.global_batch);
  EXPECT_EQ(back.dataset, state.dataset);
  EXPECT_EQ(back.dataset_fingerprint, state.dataset_fingerprint);
  EXPECT_EQ(back.graph, state.graph);
  EXPECT_EQ(back.model, state.model);
  EXPECT_EQ(back.optimizer, state.optimizer);
  EXPECT_EQ(back.strategy, state.strategy);
  EXPECT_EQ(back.replicas, state.replicas);
  EXPECT_EQ(back.plan, state.plan);
  EXPECT_EQ(back.notes, state.notes);
}

TEST_F(CheckpointTest, ArraysAreListedWholeWhoeverWroteThem) {
  Checkpoints checkpoints = keeping(1);
  const Arrays saved = some_arrays(1);
  save(checkpoints, 1, saved, 5, random_);
  const auto listed = checkpoints.arrays(1);
  ASSERT_EQ(listed.size(), saved.size());
  for (const NamedArray& array : saved) {
    const auto found = std::find_if(listed.begin(), listed.end(),
                                    [&](const auto& info) { return info.name == array.name; });
    ASSERT_NE(found, listed.end()) << array.name;
    EXPECT_EQ(found->shape, array.shape);
    EXPECT_EQ(found->dtype, array.dtype);
  }
}

TEST_F(CheckpointTest, NothingSavedIsNoCheckpoint) {
  Checkpoints checkpoints = keeping(1);
  EXPECT_EQ(checkpoints.newest_whole(), std::nullopt);
  EXPECT_TRUE(checkpoints.steps().empty());
  EXPECT_THAT(error_of([&] { checkpoints.read_state(3); }),
              AllOf(HasSubstr("invalid"), HasSubstr("no checkpoint of step 3")));
}

TEST_F(CheckpointTest, TheNewestFewAreKept) {
  for (int keep : {1, 2, 3}) {
    Checkpoints checkpoints(storage_, "keep" + std::to_string(keep), keep, lines_.log());
    std::vector<std::int64_t> written;
    for (std::int64_t step = 10; step <= 60; step += 10) {
      save(checkpoints, step, tiny_arrays(1), 2, random_);
      written.push_back(step);
      if (int(written.size()) > keep) written.erase(written.begin());
      EXPECT_EQ(checkpoints.steps(), written);
      EXPECT_EQ(storage_.list("keep" + std::to_string(keep)).size(), written.size());
    }
  }
}

TEST_F(CheckpointTest, OnlyWholeOnesCountAsKept) {
  Checkpoints checkpoints = keeping(2);
  save(checkpoints, 1, tiny_arrays(1), 2, random_);
  save(checkpoints, 2, tiny_arrays(2), 2, random_);
  storage_.remove_tree("runs/digits/step-0000000002/" + engine::shard_name(1, 2));
  save(checkpoints, 3, tiny_arrays(3), 2, random_);
  EXPECT_THAT(checkpoints.steps(), ElementsAre(1, 2, 3));
  save(checkpoints, 4, tiny_arrays(4), 2, random_);
  EXPECT_THAT(checkpoints.steps(), ElementsAre(3, 4));
}

TEST_F(CheckpointTest, AfterFallingBackTheSameStepIsWrittenAnew) {
  Checkpoints checkpoints = keeping(1);
  const Arrays second = tiny_arrays(22);
  save(checkpoints, 1, tiny_arrays(1), 2, random_);
  save(checkpoints, 1, second, 3, random_, "again");
  EXPECT_EQ(checkpoints.newest_whole(), 1);
  EXPECT_TRUE(same(restored(checkpoints, 1, second), second));
  EXPECT_EQ(checkpoints.read_state(1).notes.at("note"), "again");
  EXPECT_THAT(storage_.list("runs/digits"), ElementsAre("step-0000000001"));
}

TEST_F(CheckpointTest, LaterStepsOfAnAbandonedHistoryAreNotCountedAndNotRemoved) {
  Checkpoints checkpoints = keeping(1);
  save(checkpoints, 5, tiny_arrays(1), 1, random_);
  save(checkpoints, 2, tiny_arrays(2), 1, random_);
  EXPECT_THAT(checkpoints.steps(), ElementsAre(2, 5));
}

TEST_F(CheckpointTest, LeftOversAreRemovedAndOtherNamesLeftAlone) {
  Checkpoints checkpoints = keeping(3);
  save(checkpoints, 1, tiny_arrays(1), 1, random_);
  for (const char* name : {"step-0000000002.partial/x", "step-0000000000.old/x",
                           "step-0000000001.replaced/x", "step-3.partial", "mine", "step-x.old"}) {
    storage_.make_folder(std::string("runs/digits/") + name);
  }
  checkpoints.begin(4);
  EXPECT_THAT(storage_.list("runs/digits"),
              ElementsAre("mine", "step-0000000001", "step-0000000004.partial", "step-3.partial",
                          "step-x.old"));
}

TEST_F(CheckpointTest, OneThatWasSetAsideComesBackWhereItsSuccessorNeverCame) {
  Checkpoints checkpoints = keeping(1);
  const Arrays saved = tiny_arrays(1);
  save(checkpoints, 1, saved, 1, random_);
  storage_.rename("runs/digits/step-0000000001", "runs/digits/step-0000000001.replaced");
  EXPECT_EQ(checkpoints.newest_whole(), 1);
  EXPECT_TRUE(same(restored(checkpoints, 1, saved), saved));
  checkpoints.begin(2);
  EXPECT_TRUE(storage_.exists("runs/digits/step-0000000001"));
  EXPECT_EQ(checkpoints.newest_whole(), 1);
}

TEST_F(CheckpointTest, AMissingShardSaysThatTheFolderMustBeShared) {
  Checkpoints checkpoints = keeping(1);
  Arrays arrays = tiny_arrays(1);
  checkpoints.begin(1);
  std::vector<Shard> shards{checkpoints.write_shard(1, 0, 2, whole_pieces(arrays))};
  shards.push_back(shards[0]);
  EXPECT_THAT(error_of([&] { checkpoints.commit(state_at(1), shards); }),
              AllOf(HasSubstr("io:"), HasSubstr("shard-00001-of-00002"), HasSubstr("shared")));
  MemoryStorage other;
  Checkpoints elsewhere(other, "runs/digits", 1, lines_.log());
  EXPECT_THAT(error_of([&] { elsewhere.write_shard(1, 1, 2, {}); }),
              AllOf(HasSubstr("io:"), HasSubstr("rank 1"), HasSubstr("shared")));
  EXPECT_EQ(checkpoints.newest_whole(), std::nullopt);
}

TEST_F(CheckpointTest, PiecesThatDoNotCoverAnArrayAreRefused) {
  Arrays arrays = tiny_arrays(1);
  const auto commit = [&](std::vector<engine::Range> ranges) {
    return error_of([&] {
      Checkpoints checkpoints = keeping(1);
      checkpoints.begin(1);
      std::vector<Shard> shards;
      for (std::size_t rank = 0; rank < ranges.size(); ++rank) {
        Piece piece = whole_pieces(arrays)[0];
        piece.range = ranges[rank];
        shards.push_back(checkpoints.write_shard(1, int(rank), int(ranges.size()), {&piece, 1}));
      }
      checkpoints.commit(state_at(1), shards);
    });
  };
  EXPECT_EQ(commit({{0, 1}, {1, 3}}), "none");
  EXPECT_THAT(commit({{0, 1}, {2, 3}}),
              AllOf(HasSubstr("'w'"), HasSubstr("1 to 2 are in no shard")));
  EXPECT_THAT(commit({{0, 2}, {1, 3}}),
              AllOf(HasSubstr("'w'"), HasSubstr("1 to 2 are there twice")));
  EXPECT_THAT(commit({{0, 3}, {0, 3}}), HasSubstr("0 to 3 are there twice"));
  EXPECT_THAT(commit({{0, 2}, {2, 2}}), HasSubstr("2 to 3 are in no shard"));
  EXPECT_THAT(commit({{0, 4}}), HasSubstr("not within its shape 3"));
}

TEST_F(CheckpointTest, RanksThatDisagreeAboutAShapeAreRefused) {
  Checkpoints checkpoints = keeping(1);
  Arrays arrays = tiny_arrays(1);
  Piece piece = whole_pieces(arrays)[0];
  checkpoints.begin(1);
  piece.range = {0, 1};
  std::vector<Shard> shards{checkpoints.write_shard(1, 0, 2, {&piece, 1})};
  piece.shape = {4};
  piece.range = {1, 3};
  shards.push_back(checkpoints.write_shard(1, 1, 2, {&piece, 1}));
  EXPECT_THAT(error_of([&] { checkpoints.commit(state_at(1), shards); }),
              AllOf(HasSubstr("invalid"), HasSubstr("disagree about 'w'")));
}

TEST_F(CheckpointTest, WhatIsMissingOrOfAnotherShapeIsNamed) {
  Checkpoints checkpoints = keeping(1);
  save(checkpoints, 1, tiny_arrays(1), 1, random_);
  float values[4] = {1, 1, 1, 1};
  Piece piece{"v", {4}, DType::kFloat32, {1, 3}, reinterpret_cast<std::byte*>(&values[1])};
  EXPECT_THAT(error_of([&] {
                checkpoints.restore(1, {&piece, 1});
              }),
              AllOf(HasSubstr("invalid"), HasSubstr("no array 'v'")));
  const std::string prefix = "v";
  checkpoints.restore(1, {&piece, 1}, {&prefix, 1});
  EXPECT_THAT(values, ElementsAre(1, 0, 0, 1));
  piece.name = "w";
  EXPECT_THAT(error_of([&] {
                checkpoints.restore(1, {&piece, 1});
              }),
              AllOf(HasSubstr("'w'"), HasSubstr("float32 3"), HasSubstr("float32 4 is wanted")));
  piece.shape = {3};
  piece.dtype = DType::kInt32;
  EXPECT_THAT(error_of([&] {
                checkpoints.restore(1, {&piece, 1});
              }),
              HasSubstr("int32 3 is wanted"));
}

TEST_F(CheckpointTest, NamesThatTheFormatCannotHoldAreRefused) {
  Checkpoints checkpoints = keeping(1);
  Arrays arrays = tiny_arrays(1);
  checkpoints.begin(1);
  for (const char* name : {"", "a@3", "__metadata__", "\xff\xfe"}) {
    arrays[0].name = name;
    EXPECT_THAT(error_of([&] { checkpoints.write_shard(1, 0, 1, whole_pieces(arrays)); }),
                HasSubstr("invalid"))
        << name;
  }
  arrays = tiny_arrays(1);
  arrays.push_back(arrays[0]);
  EXPECT_THAT(error_of([&] { checkpoints.write_shard(1, 0, 1, whole_pieces(arrays)); }),
              HasSubstr("'w' is given twice"));
}

}  // namespace checkpoint_test
}  // namespace lockstep::test
