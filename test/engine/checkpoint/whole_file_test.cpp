// SPDX-License-Identifier: MIT
#include "engine/checkpoint/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "engine/base/error.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace whole_file_test {

namespace fs = std::filesystem;
using engine::WholeFile;
using testing::HasSubstr;

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::size_t entries(const std::string& folder) {
  return std::size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(WholeFileTest, WhatWasThereStaysUntilTheNewFileIsWhole) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  std::ofstream(path) << "before";
  WholeFile file(path);
  EXPECT_EQ(content(path), "before");
  file.commit(std::string(100000, 'x'));
  EXPECT_EQ(content(path), std::string(100000, 'x'));
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(WholeFileTest, LinksStayAndWhatTheyLeadToIsWritten) {
  const TemporaryFolder folder;
  const std::string there = folder.path() + "/there", first = folder.path() + "/first";
  fs::create_directory(there);
  fs::create_symlink("there/link", first);  // relative, to a file not yet there
  fs::create_symlink(there + "/file", there + "/link");
  for (const std::string text : {"new", "newer"}) {
    WholeFile(first).commit(text);
    EXPECT_TRUE(fs::is_symlink(first));
    EXPECT_TRUE(fs::is_symlink(there + "/link"));
    EXPECT_EQ(content(there + "/file"), text);
    EXPECT_EQ(entries(there), 2u);
  }
  fs::create_symlink(folder.path() + "/loop", folder.path() + "/loop");
  EXPECT_THROW(WholeFile(folder.path() + "/loop"), engine::Error);
}

TEST(WholeFileTest, WhatIsNotCommittedLeavesNothing) {
  const TemporaryFolder folder;
  { WholeFile file(folder.path() + "/file"); }
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(WholeFileTest, APathThatCannotBeWrittenIsSaidAtOnce) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "text";
  for (const std::string& path : {folder.path(), folder.path() + "/none/file",
                                  folder.path() + "/file/below", std::string("/dev/null")}) {
    try {
      WholeFile file(path);
      ADD_FAILURE() << path;
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kIo);
      EXPECT_THAT(error.what(), HasSubstr("cannot write " + path));
    }
  }
  EXPECT_EQ(entries(folder.path()), 1u);
}

// A limit on file sizes stands in for a full disk.
TEST(WholeFileTest, AFullDiskIsAnErrorAndLeavesWhatWasThere) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  std::ofstream(path) << "before";
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, old.rlim_max};
  std::optional<WholeFile> file;
  file.emplace(path);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(file->commit(std::string(5000, 'x')), engine::Error);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  file.reset();
  EXPECT_EQ(content(path), "before");
  EXPECT_EQ(entries(folder.path()), 1u);
}

}  // namespace whole_file_test
}  // namespace lockstep::test
