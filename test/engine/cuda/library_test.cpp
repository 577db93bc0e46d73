// SPDX-License-Identifier: MIT
#include "engine/cuda/library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace library_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns the error message of opening a library; empty if it opens.
std::string refusal(const LibrarySearch& search) {
  try {
    const Library library(search);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnavailable);
    return error.what();
  }
  return "";
}

// Returns the file from which this program loaded its cosine.
std::filesystem::path math_library() {
  double (*const cosine)(double) = std::cos;
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<void*>(cosine), &info), 0);
  return std::filesystem::canonical(info.dli_fname);
}

// Creates an empty folder of that name for a test's files.
std::filesystem::path fresh_folder(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

// The library is a copy that only the test has opened.
TEST(Library, FunctionsStayWhenItIsGone) {
  const std::filesystem::path copy = fresh_folder("copied_library") / "libcopied.so.1";
  std::filesystem::copy_file(math_library(), copy);
  double (*cosine)(double) = nullptr;
  take(Library({.names = {copy.string()}, .folders = {}, .help = ""}), cosine, "cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(1.0), std::cos(1.0));
}

TEST(Library, TakesTheFirstNameThatOpens) {
  const Library library(
      {.names = {"libnowhere.so.1", "libm.so.6", "libc.so.6"}, .folders = {}, .help = ""});
  EXPECT_EQ(library.name(), "libm.so.6");
}

TEST(Library, LooksIntoFoldersToo) {
  const std::filesystem::path folder = fresh_folder("libraries");
  const std::filesystem::path link = folder / "libfolded.so.1";
  std::filesystem::create_symlink(math_library(), link);
  const Library library(
      {.names = {"libfolded.so.1"}, .folders = {"/nowhere", folder.string()}, .help = ""});
  EXPECT_EQ(library.name(), link.string());
}

TEST(Library, AMissingOneIsNamedInOneLineWithWhatWouldHelp) {
  const std::string line = refusal(
      {.names = {"libnowhere.so.1"}, .folders = {"/nowhere"}, .help = "install the nowhere"});
  EXPECT_THAT(line, AllOf(StartsWith("libnowhere.so.1 could not be opened ("),
                          HasSubstr("): install the nowhere"), Not(HasSubstr("\n"))));
}

// The error reports a file that exists but does not open, rather than missing files.
TEST(Library, TheReasonIsThatOfTheFileThatIsThere) {
  const std::filesystem::path folder = fresh_folder("broken");
  std::ofstream(folder / "libbroken.so.1") << std::string(4096, 'x');
  const std::string line = refusal({.names = {"libbroken.so.1"},
                                    .folders = {folder.string(), "/nowhere"},
                                    .help = "install it again"});
  EXPECT_THAT(line, HasSubstr((folder / "libbroken.so.1").string()));
  EXPECT_THAT(line, Not(HasSubstr("/nowhere")));
}

TEST(Library, AMissingFunctionIsNamed) {
  const Library library({.names = {"libm.so.6"}, .folders = {}, .help = "take a newer one"});
  try {
    library.symbol("cosine_of_the_future");
    FAIL() << "found it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnavailable);
    EXPECT_STREQ(error.what(),
                 "libm.so.6 has no cosine_of_the_future, so it is too old: take a newer one");
  }
}

}  // namespace library_test
}  // namespace lockstep::engine::cuda
