// SPDX-License-Identifier: MIT
// Tests that one run at a time saves into a folder. The second learns which run holds it, and
// nothing is left over.
#include "engine/checkpoint/folder_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "engine/base/error.h"
#include "test/engine/checkpoint/fault_storage.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace folder_claim_test {

using engine::Code;
using engine::Error;
using engine::FolderClaim;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(FolderClaimTest, TheSecondRunIsToldWhoHasTheFolder) {
  MemoryStorage storage;
  LogLines lines;
  std::optional<FolderClaim> first(std::in_place, storage, "runs/digits", lines.log());
  EXPECT_NO_THROW(first->require_held());
  try {
    FolderClaim second(storage, "runs/digits", lines.log());
    FAIL() << "two have the folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_THAT(error.what(), HasSubstr("runs/digits is in use: pid "));
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(::getpid())));
    EXPECT_THAT(error.what(), HasSubstr(" on host "));
  }
  EXPECT_NO_THROW(FolderClaim(storage, "runs/letters", lines.log()).require_held());
  first.reset();
  EXPECT_THAT(storage.list("runs/digits"), IsEmpty());
  EXPECT_NO_THROW(FolderClaim(storage, "runs/digits", lines.log()).require_held());
  EXPECT_EQ(lines.all(), "");
}

// The claim removes the folders that it created, and nothing else: existing folders and files of
// others stay.
TEST(FolderClaimTest, ARunThatSavesNothingLeavesNoFolders) {
  LogLines lines;
  MemoryStorage storage;
  storage.make_folder("mine");
  { const FolderClaim claim(storage, "mine/runs/digits", lines.log()); }
  EXPECT_THAT(storage.list("mine"), IsEmpty());
  { const FolderClaim claim(storage, "mine", lines.log()); }
  EXPECT_TRUE(storage.exists("mine"));
  {
    const FolderClaim claim(storage, "mine/runs/digits", lines.log());
    storage.make_folder("mine/runs/letters");
  }
  EXPECT_THAT(storage.list("mine/runs"), ElementsAre("letters"));
  {
    const FolderClaim claim(storage, "mine/runs/digits", lines.log());
    storage.make_folder("mine/runs/digits/step-000000000001");
  }
  EXPECT_THAT(storage.list("mine/runs/digits"), ElementsAre("step-000000000001"));
}

TEST(FolderClaimTest, AFolderThatRefusesIsAnErrorOnlyForWhoWritesThere) {
  LogLines lines;
  int call = 0;
  for (;; ++call) {
    MemoryStorage storage;
    FaultStorage faulty(storage, call, FaultStorage::When::kBefore, FaultStorage::no_space);
    const FolderClaim claim(faulty, "runs", lines.log());
    if (faulty.calls() <= call) break;
    try {
      claim.require_held();
      ADD_FAILURE() << "call " << call << " failed, and nobody said so";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo);
      EXPECT_THAT(error.what(), HasSubstr("No space left"));
      EXPECT_THAT(error.what(), HasSubstr("can be written"));
    }
  }
  EXPECT_EQ(call, 2);
}

}  // namespace folder_claim_test
}  // namespace lockstep::test
