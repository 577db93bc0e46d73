// SPDX-License-Identifier: MIT
#include "engine/base/plain_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/brief.h"
#include "engine/base/error.h"

namespace lockstep::engine {
namespace plain_file_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Property;
using testing::Throws;

class PlainFiles : public testing::Test {
 protected:
  PlainFiles() { std::filesystem::create_directories(folder_); }
  ~PlainFiles() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& text) const {
    std::ofstream(at("file")) << text;
    return at("file");
  }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("lockstep_plain_file_test." + std::to_string(::getpid()));
};

TEST_F(PlainFiles, NothingElseIsOpenedAndNothingWaits) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(at("pipe"), at("link"));
  for (const auto& [path, fault] : {std::pair(at("pipe"), "is not a file, but a pipe"),
                                    {at("link"), "is not a file, but a pipe"},
                                    {at(""), "is not a file, but a folder"},
                                    {"/dev/zero", "is not a file, but a device"},
                                    {at("none"), "cannot be opened: No such file or directory"}}) {
    for (const int flags : {O_RDONLY, O_WRONLY, O_RDWR})
      EXPECT_EQ(PlainFile(path, flags).fault(), fault) << path;
    EXPECT_THAT([&] { read_text(path, "the file", 10); },
                Throws<Error>(AllOf(Property(&Error::code, Code::kIo),
                                    Property(&Error::what, "the file " + std::string(fault)))));
  }
  EXPECT_EQ(PlainFile(at("none")).error(), ENOENT);
}

TEST_F(PlainFiles, TextsAreReadUpToTheirBound) {
  const std::string text(100'000, 'x');
  EXPECT_EQ(read_text(write(text), "it", text.size()), text);
  EXPECT_EQ(read_text(write(""), "it", 0), "");
  EXPECT_GT(read_text("/proc/self/status", "it", 1 << 16).size(), 100u);  // stat reports size 0
  for (const std::string& path : {write(text), std::string("/proc/self/pagemap")})
    EXPECT_THAT([&] { read_text(path, "it", text.size() - 1); },
                Throws<Error>(AllOf(Property(&Error::code, Code::kInvalid),
                                    Property(&Error::what, HasSubstr("longer than the 99999")))));
}

TEST_F(PlainFiles, AShortReadEndsAtTheEndOfTheFile) {
  const PlainFile file(write("abc"));
  std::string to(5, '-');
  EXPECT_EQ(file.read(to, 1), 2u);
  EXPECT_EQ(to, "bc---");
  EXPECT_EQ(file.bytes(), 3u);
}

TEST(Brief, KeepsTheBeginningAndTheEnd) {
  EXPECT_EQ(brief("short"), "short");
  EXPECT_EQ(brief(std::string(200, 'x')), std::string(200, 'x'));
  const std::string cut = brief("/begin/" + std::string(5000, 'x') + "/end");
  EXPECT_EQ(cut.size(), kMostQuoted);
  EXPECT_THAT(cut,
              AllOf(testing::StartsWith("/begin/"), HasSubstr("..."), testing::EndsWith("/end")));
  EXPECT_EQ(brief_words("cannot read " + std::string(500, 'x') + "  twice").size(), 12 + 200 + 7u);
  EXPECT_EQ(brief_words("no '" + std::string(500, ' ') + "'; it").size(), 3 + 200 + 3u);
}

TEST(Brief, CutsNoCharacterInTwo) {
  const std::string two = "\xc3\xa9";
  for (const std::string before : {"", "x", "xx"}) {
    std::string text = before;
    for (int i = 0; i < 500; ++i) text += two;
    std::string cut = brief(text);
    EXPECT_LE(cut.size(), kMostQuoted);
    cut.erase(cut.find("..."), 3);
    EXPECT_EQ((cut.size() - before.size()) % 2, 0u);
    for (std::size_t i = before.size(); i < cut.size(); i += 2) ASSERT_EQ(cut.substr(i, 2), two);
  }
}

TEST(Brief, ReasonsHaveNoNamesOfALibrary) {
  EXPECT_EQ(reason_of(std::runtime_error("[json.exception.out_of_range.406] number overflow")),
            "number overflow");
  EXPECT_EQ(reason_of(std::runtime_error("[a list")), "[a list");
}

}  // namespace plain_file_test
}  // namespace lockstep::engine
