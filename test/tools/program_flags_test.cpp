// SPDX-License-Identifier: MIT
// Tests the flags of small programs: accepted and refused values, and the exit code.
#include "tools/bench/program_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep::test {
namespace program_flags_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::CaptureStdout;
using testing::internal::GetCapturedStderr;
using testing::internal::GetCapturedStdout;

class ProgramFlags : public testing::Test {
 protected:
  ProgramFlags() {
    flags_.option("--turns", turns_, "of each", tools::bench::NumberRange{1, 10});
    flags_.option("--optimizer", optimizer_, {}, std::vector<std::string>{"sgd", "adam"});
    flags_.option("--shapes", shapes_);
    flags_.list("--chunks", chunks_, {}, tools::bench::NumberRange{1, 60});
    flags_.flag("--json", json_);
    flags_.hidden_flag("--serve", serve_);
  }
  int run(
      std::vector<std::string> words, const std::function<int()>& body = [] { return 0; }) {
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return flags_.run(int(argv.size()), argv.data(), body);
  }

  tools::bench::ProgramFlags flags_{"program", "What it does."};
  int turns_ = 7;
  std::string optimizer_ = "sgd";
  std::vector<std::string> shapes_;
  std::vector<std::size_t> chunks_ = {4, 8};
  bool json_ = false, serve_ = false;
};

TEST_F(ProgramFlags, AreReadAndTheLastCounts) {
  EXPECT_EQ(run({"--turns", "3", "--chunks", "1,2", "--chunks", "3", "--shapes", "1,2", "3,4",
                 "--json", "--turns", "5", "--serve"},
                [] { return 9; }),
            9);
  EXPECT_EQ(turns_, 5);
  EXPECT_EQ(optimizer_, "sgd");
  EXPECT_THAT(chunks_, ElementsAre(1, 2, 3));
  EXPECT_THAT(shapes_, ElementsAre("1,2", "3,4"));
  EXPECT_TRUE(json_ && serve_);
}

TEST_F(ProgramFlags, ThatAreWrongEndTheProgramBeforeItsBody) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--turns", "0"},
                                                {"--chunks", "4,61"},
                                                {"--optimizer", "lamb"},
                                                {"--turn", "3"}}) {
    CaptureStderr();
    EXPECT_NE(run(words, []() -> int { throw std::logic_error("it ran"); }), 0) << words[0];
    const std::string said = GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr(words[0])) << words[1];
    if (words[1] == "0") {
      EXPECT_THAT(said, HasSubstr("not in range 1 to 10"));
    }
  }
}

TEST_F(ProgramFlags, AnErrorOfTheBodyIsALine) {
  CaptureStderr();
  EXPECT_EQ(run({}, []() -> int { throw std::runtime_error("no such model"); }), 1);
  EXPECT_EQ(GetCapturedStderr(), "program: no such model\n");
}

TEST_F(ProgramFlags, HelpSaysTheDefaultsAndNothingOfHiddenFlags) {
  CaptureStdout();
  EXPECT_EQ(run({"--help"}), 0);
  const std::string help = GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("What it does."));
  EXPECT_THAT(help, HasSubstr("=7"));
  EXPECT_THAT(help, testing::Not(testing::AnyOf(HasSubstr("--serve"), HasSubstr("=[]"))));
}

}  // namespace program_flags_test
}  // namespace lockstep::test
