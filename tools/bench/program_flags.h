// SPDX-License-Identifier: MIT
// Reads the flags of a small program, such as a benchmark, and runs it. Such programs do not
// include CLI11, which takes longer to compile than they do. Where a flag is given twice, its last
// value counts; where it takes several, all count.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::tools::bench {

// The values that a flag takes: any, numbers of a range, or one of some words.
struct NumberRange {
  double least = 0, most = 0;
};
using AllowedValues = std::variant<std::monostate, NumberRange, std::vector<std::string>>;

class ProgramFlags {
 public:
  ProgramFlags(const std::string& program, const std::string& what);
  ~ProgramFlags();
  ProgramFlags(const ProgramFlags&) = delete;
  ProgramFlags& operator=(const ProgramFlags&) = delete;

  // `value`: the default, which is replaced by what was given. It must live as long as this. T:
  // std::string, int, std::int64_t, std::size_t, float, double, or std::vector<std::string>, which
  // takes several words.
  template <class T>
  void option(const std::string& name, T& value, const std::string& help = {},
              const AllowedValues& allowed = {});
  // "1,2,3". T: std::string or std::size_t.
  template <class T>
  void list(const std::string& name, std::vector<T>& values, const std::string& help = {},
            const AllowedValues& allowed = {});
  void required(const std::string& name, std::string& value, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help = {});
  void hidden_flag(const std::string& name, bool& value);  // not in --help

  // Reads the command line and calls `body`. Returns the exit code of the program: that of `body`,
  // 0 after --help, one of CLI11 for a wrong flag, 1 where `body` throws, after a line that says
  // what.
  int run(int argc, char** argv, const std::function<int()>& body);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace lockstep::tools::bench
