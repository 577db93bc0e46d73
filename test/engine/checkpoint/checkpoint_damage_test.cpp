// SPDX-License-Identifier: MIT
// Tests checkpoints that were damaged after they were written. The reader detects the damage, names
// the file, and uses the previous checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace checkpoint_damage_test {

using engine::Checkpoints;
using engine::Error;
using engine::Storage;
using testing::AllOf;
using testing::HasSubstr;

const std::string kNewest = "runs/step-0000000002/";

class CheckpointDamageTest : public testing::Test {
 protected:
  void save_two(Storage& storage, const std::string& folder, const Arrays& arrays) {
    std::mt19937_64 random(5);
    Checkpoints checkpoints(storage, folder, 2, lines_.log());
    save(checkpoints, 1, arrays, 2, random);
    save(checkpoints, 2, arrays, 2, random);
    ASSERT_EQ(checkpoints.newest_whole(), 2);
  }
  // Expects that the reader uses the checkpoint of step 1 because `file` of step 2 is damaged.
  void expect_fallback(Storage& storage, const std::string& folder, const std::string& file) {
    lines_.clear();
    Checkpoints checkpoints(storage, folder, 2, lines_.log());
    EXPECT_EQ(checkpoints.newest_whole(), 1);
    EXPECT_TRUE(lines_.contain("the checkpoint of step 2 cannot be used")) << lines_.all();
    EXPECT_TRUE(lines_.contain(file)) << file << " is not named in: " << lines_.all();
    EXPECT_TRUE(lines_.contain("trying the one before")) << lines_.all();
  }
  LogLines lines_;
};

TEST_F(CheckpointDamageTest, EveryFlippedBitOfSmallFilesIsNoticed) {
  MemoryStorage storage;
  save_two(storage, "runs", tiny_arrays(1));
  for (const std::string& file : storage.list("runs/step-0000000002")) {
    auto& bytes = storage.contents(kNewest + file);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] ^= std::byte(1 << bit % 8);
      expect_fallback(storage, "runs", file);
      bytes[bit / 8] ^= std::byte(1 << bit % 8);
      ASSERT_FALSE(HasFailure()) << file << ", bit " << bit;
    }
  }
}

TEST_F(CheckpointDamageTest, RandomFlippedBitsOfDataAreNoticed) {
  MemoryStorage storage;
  std::mt19937_64 random(6);
  Arrays arrays = some_arrays(1);
  arrays[0].shape = {64, 16, 5, 2};
  arrays[0].bytes.resize(arrays[0].shape.elements() * 4, std::byte{1});
  save_two(storage, "runs", arrays);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::string file = engine::shard_name(int(random() % 2), 2);
    auto& bytes = storage.contents(kNewest + file);
    const std::size_t bit = random() % (8 * bytes.size());
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    expect_fallback(storage, "runs", file);
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    ASSERT_FALSE(HasFailure()) << file << ", bit " << bit;
  }
}

TEST_F(CheckpointDamageTest, FilesThatAreShortLongOrGoneAreNoticed) {
  MemoryStorage whole;
  save_two(whole, "runs", some_arrays(1));
  for (const std::string& file : whole.list("runs/step-0000000002")) {
    const auto storage = whole.copy();
    const auto original = storage->contents(kNewest + file);
    for (const std::size_t size : {std::size_t{0}, original.size() / 2, original.size() - 1,
                                   original.size() + 1, original.size() + 4096}) {
      storage->contents(kNewest + file).resize(size);
      expect_fallback(*storage, "runs", file);
      storage->contents(kNewest + file) = original;
    }
    storage->remove_tree(kNewest + file);
    expect_fallback(*storage, "runs", file);
  }
}

TEST_F(CheckpointDamageTest, WhereNoneIsWholeNothingIsFoundAndAllAreReported) {
  MemoryStorage storage;
  save_two(storage, "runs", tiny_arrays(1));
  for (const char* step : {"runs/step-0000000001", "runs/step-0000000002"}) {
    storage.remove_tree(step + std::string("/manifest.json"));
  }
  lines_.clear();
  Checkpoints checkpoints(storage, "runs", 2, lines_.log());
  EXPECT_EQ(checkpoints.newest_whole(), std::nullopt);
  EXPECT_TRUE(lines_.contain("step 2 cannot be used"));
  EXPECT_TRUE(lines_.contain("step 1 cannot be used"));
  EXPECT_TRUE(lines_.contain("there is none before it"));
}

TEST_F(CheckpointDamageTest, AnErrorOfReadingNamesTheFile) {
  MemoryStorage storage;
  save_two(storage, "runs", tiny_arrays(1));
  Checkpoints checkpoints(storage, "runs", 2, lines_.log());
  storage.contents(kNewest + "manifest.json")[100] ^= std::byte{1};
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { checkpoints.read_state(2); }, [&] { checkpoints.arrays(2); },
           [&] { checkpoints.verify(2); }, [&] { checkpoints.restore(2, {}); }}) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kCorrupt);
      EXPECT_THAT(error.what(), HasSubstr("step-0000000002/manifest.json"));
    }
  }
}

// The manifest's checksum is right, but its entry for a shard is wrong.
TEST_F(CheckpointDamageTest, AShardThatIsNotAsTheManifestSaysIsNoticedWhenRestoring) {
  MemoryStorage storage;
  std::mt19937_64 random(5);
  Checkpoints checkpoints(storage, "runs", 2, lines_.log());
  const auto one_shard = [&](std::int64_t step, const char* name) {
    Arrays arrays = tiny_arrays(1);
    arrays[0].name = name;
    checkpoints.begin(step);
    const engine::Shard shard = checkpoints.write_shard(step, 0, 1, whole_pieces(arrays));
    engine::RunState state;
    state.step = step;
    checkpoints.commit(state, {&shard, 1});
  };
  one_shard(1, "v");
  one_shard(2, "w");
  const std::string file = engine::shard_name(0, 1);
  storage.contents(kNewest + file) = storage.contents("runs/step-0000000001/" + file);
  try {
    restored(checkpoints, 2, tiny_arrays(1));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(file), HasSubstr("'w'")));
  }
}

TEST_F(CheckpointDamageTest, LinksAreFollowedAndTheNextSaveReplacesTheLinkAlone) {
  const TemporaryFolder folder;
  const auto storage = engine::posix_storage();
  const std::string runs = folder.path() + "/runs", newest = runs + "/step-0000000002";
  const std::string shard = engine::shard_name(1, 2), link = folder.path() + "/link";
  save_two(*storage, runs, tiny_arrays(1));
  std::filesystem::rename(newest + "/" + shard, folder.path() + "/elsewhere");
  std::filesystem::create_symlink(folder.path() + "/elsewhere", newest + "/" + shard);
  std::filesystem::rename(newest, folder.path() + "/aside");
  std::filesystem::create_directory_symlink(folder.path() + "/aside", newest);
  std::filesystem::create_directory_symlink(runs, link);
  Checkpoints checkpoints(*storage, link, 1, lines_.log());
  EXPECT_EQ(checkpoints.newest_whole(), 2);
  std::mt19937_64 random(5);
  save(checkpoints, 3, tiny_arrays(2), 1, random);
  EXPECT_THAT(storage->list(runs), testing::ElementsAre("step-0000000003"));
  EXPECT_THAT(storage->list(folder.path() + "/aside"), testing::Contains("manifest.json"));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(lines_.all(), "");
}

TEST_F(CheckpointDamageTest, WhatIsNoFileOrNoFolderIsNotUsed) {
  const TemporaryFolder folder;
  const auto storage = engine::posix_storage();
  const std::string runs = folder.path() + "/runs", newest = runs + "/step-0000000002";
  const std::string shard = engine::shard_name(1, 2);
  save_two(*storage, runs, tiny_arrays(1));
  // The shard is a dangling symbolic link, then a folder.
  std::filesystem::rename(newest + "/" + shard, folder.path() + "/elsewhere");
  std::filesystem::create_symlink(folder.path() + "/nowhere", newest + "/" + shard);
  expect_fallback(*storage, runs, shard);
  std::filesystem::remove(newest + "/" + shard);
  std::filesystem::create_directory(newest + "/" + shard);
  expect_fallback(*storage, runs, shard);
  std::filesystem::remove(newest + "/" + shard);
  std::filesystem::rename(folder.path() + "/elsewhere", newest + "/" + shard);
  // The folder of the checkpoint is a dangling symbolic link, then a file.
  std::filesystem::rename(newest, folder.path() + "/aside");
  std::filesystem::create_directory_symlink(folder.path() + "/nowhere", newest);
  expect_fallback(*storage, runs, "step-0000000002");
  std::filesystem::remove(newest);
  std::filesystem::copy_file(folder.path() + "/aside/manifest.json", newest);
  expect_fallback(*storage, runs, "step-0000000002");
  // The next save of that step replaces it.
  std::mt19937_64 random(5);
  Checkpoints checkpoints(*storage, runs, 2, lines_.log());
  save(checkpoints, 2, tiny_arrays(2), 1, random);
  EXPECT_EQ(checkpoints.newest_whole(), 2);
}

TEST_F(CheckpointDamageTest, ASparseTebibyteIsRefusedByItsSize) {
  const TemporaryFolder folder;
  const auto storage = engine::posix_storage();
  const std::string runs = folder.path() + "/runs", shard = engine::shard_name(0, 2);
  save_two(*storage, runs, tiny_arrays(1));
  std::error_code error;
  std::filesystem::resize_file(runs + "/step-0000000002/" + shard, std::uintmax_t{1} << 40, error);
  if (error) GTEST_SKIP() << "no file of 1 TiB can be made here";
  expect_fallback(*storage, runs, shard);
  std::filesystem::resize_file(runs + "/step-0000000002/manifest.json", std::uintmax_t{1} << 40);
  expect_fallback(*storage, runs, "manifest.json");
}

TEST_F(CheckpointDamageTest, AFolderThatIsAFileIsOneClearError) {
  const TemporaryFolder folder;
  const auto storage = engine::posix_storage();
  storage->create(folder.path() + "/runs");
  Checkpoints checkpoints(*storage, folder.path() + "/runs", 1, lines_.log());
  try {
    checkpoints.begin(1);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kIo);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(folder.path() + "/runs"), HasSubstr("a file")));
  }
}

}  // namespace checkpoint_damage_test
}  // namespace lockstep::test
