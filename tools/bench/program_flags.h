// SPDX-License-Identifier: MIT
// Reads the flags of a small program, such as a benchmark, and runs it. Such programs do not
// include CLI11, which takes longer to compile than they do. If a flag is given twice, its last
// value counts; if it takes several values, all count.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::tools::bench {

// The allowed values of a flag: any, numbers of a range, or one of some words.
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

  // Adds a flag. `value`: the default, which the given value replaces; it must live as long as
  // this. T: std::string, int, std::int64_t, std::size_t, float, double, or
  // std::vector<std::string>, which takes several words.
  template <class T>
  void option(const std::string& name, T& value, const std::string& help = {},
              const AllowedValues& allowed = {});
  // Adds a flag that takes a list such as "1,2,3". T: std::string or std::size_t.
  template <class T>
  void list(const std::string& name, std::vector<T>& values, const std::string& help = {},
            const AllowedValues& allowed = {});
  void required(const std::string& name, std::string& value, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help = {});
  void hidden_flag(const std::string& name, bool& value);  // not in --help

  // Reads the command line and calls `body`. Returns the exit code of the program: that of `body`,
  // 0 after --help, CLI11's code for a wrong flag, or 1 if `body` throws. It prints the error.
  int run(int argc, char** argv, const std::function<int()>& body);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace lockstep::tools::bench
