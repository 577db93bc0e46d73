// SPDX-License-Identifier: MIT
#include "tools/bench/program_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <type_traits>

namespace lockstep::tools::bench {
namespace {

// Returns the check of a range. Whole numbers look like whole numbers in CLI11's messages.
template <class T>
CLI::Validator range_validator(const NumberRange& range, const T&) {
  if constexpr (std::is_integral_v<T>)
    return CLI::Range(std::int64_t(range.least), std::int64_t(range.most));
  return CLI::Range(range.least, range.most);
}
template <class T>
CLI::Validator range_validator(const NumberRange& range, const std::vector<T>&) {
  return range_validator(range, T{});
}

}  // namespace

struct ProgramFlags::Parser {
  template <class T>
  CLI::Option* add(const std::string& name, T& value, const std::string& help,
                   const AllowedValues& allowed) {
    CLI::Option* const option = app.add_option(name, value, help);
    if constexpr (std::is_arithmetic_v<T>) {
      option->capture_default_str();
    } else if (!value.empty()) {
      option->capture_default_str();
    }
    if (const auto* range = std::get_if<NumberRange>(&allowed))
      option->check(range_validator(*range, value));
    if (const auto* words = std::get_if<std::vector<std::string>>(&allowed))
      option->check(CLI::IsMember(*words));
    return option;
  }

  CLI::App app;
};

ProgramFlags::ProgramFlags(const std::string& program, const std::string& what)
    : parser_(new Parser{CLI::App(what, program)}) {
  parser_->app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}
ProgramFlags::~ProgramFlags() = default;

template <class T>
void ProgramFlags::option(const std::string& name, T& value, const std::string& help,
                          const AllowedValues& allowed) {
  parser_->add(name, value, help, allowed);
}
template void ProgramFlags::option(const std::string&, std::string&, const std::string&,
                                   const AllowedValues&);
template void ProgramFlags::option(const std::string&, int&, const std::string&,
                                   const AllowedValues&);
template void ProgramFlags::option(const std::string&, std::int64_t&, const std::string&,
                                   const AllowedValues&);
template void ProgramFlags::option(const std::string&, std::size_t&, const std::string&,
                                   const AllowedValues&);
template void ProgramFlags::option(const std::string&, float&, const std::string&,
                                   const AllowedValues&);
template void ProgramFlags::option(const std::string&, double&, const std::string&,
                                   const AllowedValues&);
template void ProgramFlags::option(const std::string&, std::vector<std::string>&,
                                   const std::string&, const AllowedValues&);

template <class T>
void ProgramFlags::list(const std::string& name, std::vector<T>& values, const std::string& help,
                        const AllowedValues& allowed) {
  parser_->add(name, values, help, allowed)->delimiter(',');
}
template void ProgramFlags::list(const std::string&, std::vector<std::string>&, const std::string&,
                                 const AllowedValues&);
template void ProgramFlags::list(const std::string&, std::vector<std::size_t>&, const std::string&,
                                 const AllowedValues&);

void ProgramFlags::required(const std::string& name, std::string& value, const std::string& help) {
  parser_->app.add_option(name, value, help)->required();
}

void ProgramFlags::flag(const std::string& name, bool& value, const std::string& help) {
  parser_->app.add_flag(name, value, help);
}

void ProgramFlags::hidden_flag(const std::string& name, bool& value) {
  parser_->app.add_flag(name, value)->group("");
}

int ProgramFlags::run(int argc, char** argv, const std::function<int()>& body) {
  CLI11_PARSE(parser_->app, argc, argv);
  try {
    return body();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", parser_->app.get_name(), error.what());
    return 1;
  }
}

}  // namespace lockstep::tools::bench
