// SPDX-License-Identifier: MIT
// Tests readers if the system refuses to read, and next to a run that saves and removes
// checkpoints. A reader gets the newest whole checkpoint or an error, never silently an older one.
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
namespace checkpoint_read_test {

using engine::Checkpoints;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using When = FaultStorage::When;

void refuse_to_read() {
  throw Error(Code::kIo, "cannot read a file: Input/output error");
}

class CheckpointRead : public testing::Test {
 protected:
  CheckpointRead() {
    save_next();
    save_next();
  }
  // Saves the next checkpoint, as a run does that keeps `keep` of them.
  void save_next(int keep = 2) {
    Checkpoints writer(storage_, "runs", keep, lines_.log());
    ++newest_;
    save(writer, newest_, tiny_arrays(std::uint64_t(newest_)), 2, random_);
  }
  // Restores the newest checkpoint, as a resumed program does, and returns its step.
  std::int64_t use(engine::Storage& storage) {
    Checkpoints reader(storage, "runs", 1, lines_.log());
    std::int64_t used = -1;
    EXPECT_TRUE(reader.use_newest([&](std::int64_t step) {
      used = reader.read_state(step).step;
      const Arrays wanted = tiny_arrays(std::uint64_t(step));
      EXPECT_TRUE(same(restored(reader, step, wanted), wanted));
    }));
    return used;
  }
  std::mt19937_64 random_{1};
  std::int64_t newest_ = 0;
  MemoryStorage storage_;
  LogLines lines_;
};

TEST_F(CheckpointRead, AReadThatIsRefusedOnceIsTriedAgain) {
  for (int call = 0;; ++call) {
    FaultStorage faulty(storage_, call, When::kBefore, refuse_to_read);
    lines_.clear();
    EXPECT_EQ(use(faulty), newest_) << "call " << call;
    EXPECT_FALSE(lines_.contain("cannot be used")) << lines_.all();
    if (faulty.calls() > call) continue;
    EXPECT_GT(call, 10);
    break;
  }
}

// Simulates a storage in which one file cannot be read.
class BadSector : public FaultStorage {
 public:
  BadSector(engine::Storage& real, std::string file)
      : FaultStorage(real, -1, When::kBefore, {}), file_(std::move(file)) {}
  void read(const std::string& path, std::uint64_t offset, std::span<std::byte> to) override {
    if (path.ends_with(file_)) refuse_to_read();
    FaultStorage::read(path, offset, to);
  }

 private:
  std::string file_;
};

TEST_F(CheckpointRead, AReadThatIsRefusedForGoodIsAnErrorAndNoOlderOneIsUsed) {
  BadSector storage(storage_, "step-0000000002/shard-00001-of-00002.safetensors");
  try {
    ADD_FAILURE() << "step " << use(storage) << " was used";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("Input/output error"), HasSubstr("remove runs/step-0000000002")));
  }
  EXPECT_FALSE(lines_.contain("trying the one before")) << lines_.all();
}

TEST_F(CheckpointRead, AWriterMayRemoveWhatIsReadAtAnyCall) {
  for (const int keep : {1, 2}) {
    for (int saves = 1; saves <= 3; ++saves) {
      for (int call = 0;; ++call) {
        SCOPED_TRACE(testing::Message() << "call " << call << ", " << saves << " saves");
        FaultStorage beside(storage_, call, When::kBefore, [&] {
          for (int i = 0; i < saves; ++i) save_next(keep);
        });
        lines_.clear();
        const std::int64_t before = newest_;
        EXPECT_GE(use(beside), before);
        EXPECT_EQ(lines_.all(), "");
        ASSERT_FALSE(HasFailure());
        if (beside.calls() <= call) break;
      }
    }
  }
}

TEST_F(CheckpointRead, AWriterThatIsAlwaysFasterIsAnErrorThatSaysSo) {
  FaultStorage beside(
      storage_, 0, When::kBefore, [&] { save_next(1); }, true);
  try {
    ADD_FAILURE() << "step " << use(beside) << " was used";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("runs"), HasSubstr("let that run keep more")));
  }
}

}  // namespace checkpoint_read_test
}  // namespace lockstep::test
