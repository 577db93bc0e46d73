// SPDX-License-Identifier: MIT
// Tests the plan cache. Several objects on one folder stand for several processes.
#include "engine/cuda/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/cuda/plan_caches.h"
#include "test/support/events.h"

namespace lockstep::engine::cuda {
namespace plan_cache_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool builds(const std::string&) {
  return true;
}

bool never_builds(const std::string&) {
  return false;
}

class PlanCacheTest : public testing::Test {
 protected:
  PlanCacheTest() : folder_(fs::path(testing::TempDir()) / "plan_cache" / "below") {
    fs::remove_all(folder_.parent_path());
  }

  PlanCache cache(const std::string& machine = "H200") { return {folder_, machine, log_}; }
  // Returns the choice of a new process that would find `mine`.
  std::string choice(const std::string& problem, const std::string& mine,
                     const std::string& machine = "H200") {
    return cache(machine).choose(problem, builds, [&] { return mine; });
  }
  fs::path file() { return cache().file(); }
  std::string content() {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void overwrite(std::string_view text) { std::ofstream(file(), std::ios::binary) << text; }
  // Returns the names in the folder.
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const fs::path folder_;
  std::vector<std::string> warnings_;
  const Log log_{"", Log::Level::kInfo,
                 [this](Log::Level, std::string_view line) { warnings_.emplace_back(line); }};
};

TEST_F(PlanCacheTest, WhatIsFoundOnceIsTakenByAll) {
  EXPECT_EQ(choice("a", "1"), "1");
  EXPECT_EQ(choice("b", "2"), "2");
  EXPECT_EQ(choice("a", "3"), "1");
  EXPECT_EQ(choice("b", "3"), "2");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PlanCacheTest, OneObjectKeepsItsChoiceWhateverBecomesOfTheFile) {
  PlanCache mine = cache();
  mine.choose("a", builds, [] { return "1"; });
  fs::remove(file());
  choice("a", "2");
  EXPECT_EQ(mine.choose("a", builds, [] { return "3"; }), "1");
  EXPECT_EQ(choice("a", "4"), "2");
}

TEST_F(PlanCacheTest, WithoutAFolderNothingIsWritten) {
  PlanCache mine({}, "H200", log_);
  EXPECT_EQ(mine.choose("a", builds, [] { return "1"; }), "1");
  EXPECT_EQ(mine.choose("a", builds, [] { return "2"; }), "1");
  EXPECT_FALSE(fs::exists(mine.file()));
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(PlanCacheTest, TheTextHasTheChoicesInUseSorted) {
  choice("z", "0");
  PlanCache mine = cache();
  EXPECT_EQ(mine.text(), "");
  mine.choose("b", builds, [] { return "2"; });
  mine.choose("a", builds, [] { return "1"; });
  EXPECT_EQ(mine.text(), "a = 1\nb = 2\n");
}

TEST_F(PlanCacheTest, WhatIsAdoptedHoldsBeforeTheFileAndAfterWhatIsInUse) {
  choice("a", "1");
  choice("b", "1");
  PlanCache mine = cache();
  mine.choose("a", builds, [] { return "9"; });
  mine.adopt("a = 2\nb = 2\nc = 2\n");
  const auto find = [] { return "3"; };
  EXPECT_EQ(mine.choose("a", builds, find), "1");
  EXPECT_EQ(mine.choose("b", builds, find), "2");
  EXPECT_EQ(mine.choose("c", builds, find), "2");
  EXPECT_EQ(mine.text(), "a = 1\nb = 2\nc = 2\n");
  EXPECT_EQ(choice("b", "3"), "1") << "the file keeps its own";
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PlanCacheTest, WhatWasAdoptedAndCannotBeBuiltIsReplaced) {
  PlanCache mine = cache();
  mine.adopt("a = 1\n");
  EXPECT_EQ(mine.choose("a", never_builds, [] { return "2"; }), "2");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("kept for the a (1) cannot be used any more")));
  EXPECT_EQ(mine.text(), "a = 2\n");
}

TEST_F(PlanCacheTest, NothingOfAnotherTextIsAdopted) {
  PlanCache mine = cache();
  for (const char* text : {"a = 1\nb", "a = 1\nb = ", "a = 1\n\n"}) {
    try {
      mine.adopt(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt);
    }
  }
  EXPECT_EQ(mine.text(), "");
}

// The name of the file depends on the GPU and on all versions.
TEST_F(PlanCacheTest, AnotherMachineHasItsOwnChoices) {
  EXPECT_EQ(choice("a", "1", "H200, cuDNN 9.19.0"), "1");
  EXPECT_EQ(choice("a", "2", "H200, cuDNN 9.20.0"), "2");
  EXPECT_EQ(choice("a", "3", "H200, cuDNN 9.19.0"), "1");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(PlanCacheTest, AFileOfAnotherMachineIsNotUsed) {
  choice("a", "1", "H100");
  fs::copy(cache("H100").file(), file());
  EXPECT_EQ(choice("a", "2"), "2");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("not used: it was written for another machine")));
  EXPECT_EQ(choice("a", "3"), "2");
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(PlanCacheTest, ADamagedFileIsAWarningAndIsReplaced) {
  choice("a", "1");
  choice("b", "1");
  const std::string whole = content();
  std::vector<std::string> damaged;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    damaged.push_back(whole.substr(0, i));
    damaged.push_back(whole);
    damaged.back()[i] ^= 1;
  }
  for (const std::string& text : damaged) {
    overwrite(text);
    warnings_.clear();
    PlanCache mine = cache();
    EXPECT_EQ(mine.choose("a", builds, [] { return "2"; }), "2") << text;
    EXPECT_EQ(mine.choose("b", builds, [] { return "2"; }), "2") << text;
    EXPECT_EQ(warnings_.size(), 1u) << text;
    EXPECT_EQ(choice("a", "3"), "2") << text;
  }
}

TEST_F(PlanCacheTest, WhatIsTooLargeIsNotRead) {
  choice("a", "1");
  fs::resize_file(file(), PlanCache::kMostBytes + 1);
  EXPECT_EQ(choice("a", "2"), "2");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("longer than the 4194304 bytes")));
  EXPECT_LT(fs::file_size(file()), 1000u);
}

TEST_F(PlanCacheTest, WhatWouldBeTooLargeIsNotWritten) {
  const std::string large(PlanCache::kMostBytes / 2, 'x');
  choice("a", large);
  PlanCache mine = cache();
  EXPECT_EQ(mine.choose("b", builds, [&] { return large; }), large);
  EXPECT_EQ(mine.choose("c", builds, [&] { return large; }), large);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("is full")));
  EXPECT_EQ(choice("a", "2"), large);
}

TEST_F(PlanCacheTest, WhatIsNotAFileIsAWarning) {
  fs::create_directories(file());
  PlanCache mine = cache();
  EXPECT_EQ(mine.choose("a", builds, [] { return "1"; }), "1");
  EXPECT_EQ(mine.choose("a", builds, [] { return "2"; }), "1");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("it is not a file")));
}

TEST_F(PlanCacheTest, AFolderThatCannotBeIsAWarning) {
  fs::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "a file";
  PlanCache mine = cache();
  EXPECT_EQ(mine.choose("a", builds, [] { return "1"; }), "1");
  EXPECT_EQ(mine.choose("b", builds, [] { return "1"; }), "1");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("cannot be written")));
}

TEST_F(PlanCacheTest, AChoiceThatCannotBeBuiltIsReplacedForAll) {
  choice("a", "1");
  EXPECT_EQ(cache().choose("a", never_builds, [] { return "2"; }), "2");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("kept for the a (1) cannot be used any more")));
  EXPECT_EQ(choice("a", "3"), "2");
  EXPECT_EQ(warnings_.size(), 1u);
}

// If two processes search at the same time, both use the choice of the first to finish.
TEST_F(PlanCacheTest, WhoWasFirstMeanwhileHolds) {
  PlanCache late = cache();
  const auto slow = [&] {
    choice("a", "1");
    return "2";
  };
  EXPECT_EQ(late.choose("a", builds, slow), "1");
  EXPECT_EQ(late.text(), "a = 1\n");
  fs::remove(file());
  EXPECT_EQ(cache().choose("a", never_builds, slow), "2");  // the first choice does not build here
  EXPECT_EQ(choice("a", "3"), "2");
}

TEST_F(PlanCacheTest, WhatWasNotFoundIsNotKept) {
  PlanCache mine = cache();
  EXPECT_THROW(
      mine.choose("a", builds, []() -> std::string { throw std::runtime_error("no memory"); }),
      std::runtime_error);
  EXPECT_EQ(mine.text(), "");
  EXPECT_EQ(mine.choose("a", builds, [] { return "1"; }), "1");
}

// Each process has some problems of its own, and some that all share.
TEST_F(PlanCacheTest, ManyWritersAgreeAndLoseNothing) {
  constexpr int kProcesses = 6, kProblems = 10;
  const auto mine = [](int process, int i) { return fmt::format("{} of {}", i, process); };
  std::vector<std::string> texts(kProcesses);
  std::vector<std::thread> threads;
  for (int process = 0; process < kProcesses; ++process) {
    threads.emplace_back([&, process] {
      PlanCache own = cache();
      for (int i = 0; i < kProblems; ++i) {
        own.choose(mine(process, i), builds, [&] { return "own"; });
      }
      PlanCache common = cache();
      for (int i = 0; i < kProblems; ++i) {
        common.choose(std::to_string(i), builds, [&] { return std::to_string(process); });
      }
      texts[std::size_t(process)] = common.text();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  PlanCache later = cache();
  for (int process = 0; process < kProcesses; ++process) {
    for (int i = 0; i < kProblems; ++i) {
      EXPECT_EQ(later.choose(mine(process, i), builds, [] { return "lost"; }), "own");
    }
  }
  EXPECT_THAT(warnings_, IsEmpty());
  const std::string name = file().filename().string();
  EXPECT_THAT(names(), ElementsAre(name, name + ".lock"));
}

// The replicas of one process search once; the others wait.
TEST_F(PlanCacheTest, AProblemIsFoundOnceByManyThreads) {
  PlanCache mine({}, "H200", log_);
  int found = 0;  // by one at a time
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto find = [&] {
        EXPECT_TRUE(test::await(test::others_sleep));
        return std::to_string(++found);
      };
      EXPECT_EQ(mine.choose("a", builds, find), "1");
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, 1);
}

TEST_F(PlanCacheTest, GpusOfAKindShareACache) {
  PlanCaches caches(folder_, log_);
  PlanCache& first = caches.of("H200");
  EXPECT_NE(&caches.of("H100"), &first);
  EXPECT_EQ(&caches.of("H200"), &first);
  EXPECT_EQ(first.file(), file());
}

}  // namespace plan_cache_test
}  // namespace lockstep::engine::cuda
