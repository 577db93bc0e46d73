// SPDX-License-Identifier: MIT
// lockstep: one program with a source file per command. Results go to standard output, everything
// else to standard error. Errors are one line; exit_codes.h defines the exit codes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/brief.h"
#include "engine/base/spelling.h"
#include "engine/base/version.h"
#include "strategies/session/supervisor.h"
#include "tools/command.h"
#include "tools/config_file.h"
#include "tools/exit_codes.h"
#include "tools/help.h"
#include "tools/launch_flags.h"
#include "tools/leaving.h"
#include "tools/standard_streams.h"

namespace lockstep::tools {
namespace {

bool lacks_value(const CLI::ParseError& error) {
  return error.get_name() == "ArgumentMismatch";
}

// Returns "--epochs: needs a value, a whole number from 0" for the parser's "--epochs: 1 required
// INT missing". The flag's type has the allowed values, as in --help: "INT:from 0".
std::string value_wanted(const CLI::App& command, const std::string& said) {
  const std::string flag = said.substr(0, said.find(':'));
  const CLI::Option* option = command.get_option_no_throw(flag);
  if (option == nullptr) return said;
  const std::string type = option->get_type_name();
  const std::size_t colon = std::min(type.find(':'), type.size());
  std::string bounds = type.substr(std::min(colon + 1, type.size()));
  if (value_kind(*option) == ValueKind::kText) {
    return fmt::format("{}: needs a value: {}", flag,
                       bounds.empty() ? option->get_description() : bounds);
  }
  if (!bounds.empty() && bounds[0] >= '0' && bounds[0] <= '9') bounds = "from " + bounds;
  return fmt::format("{}: needs a value, {}{}{}", flag,
                     type.starts_with("FLOAT") ? "a number" : "a whole number",
                     bounds.empty() ? "" : " ", bounds);
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// Returns lockstep's name for a flag that other programs have; empty if there is none.
std::string flag_of_other_programs(const std::string& name) {
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"amp", "dtype"},
      {"bs", "batch"},
      {"c", "check"},
      {"checkpoint-dir", "checkpoints"},
      {"ckpt", "checkpoints"},
      {"g", "devices"},
      {"gpu", "device"},
      {"gpus", "device cuda --replicas"},
      {"log-dir", "summary"},
      {"logdir", "summary"},
      {"ngpus", "devices"},
      {"nproc-per-node", "replicas"},
      {"num-gpus", "device cuda --replicas"},
      {"output-dir", "checkpoints"},
      {"precision", "dtype"},
      {"resume", "checkpoints"},
      {"save", "checkpoints"},
      {"workers", "replicas"}};
  for (const auto& [other, own] : kNames)
    if (name == other) return own;
  return {};
}

// Returns "; did you mean --model?", "; it is a flag of lockstep predict", or nothing. `argument`
// is unknown to the command.
std::string meant(const CLI::App& app, const CLI::App& command, const std::string& argument) {
  const std::size_t begin = std::min(argument.find_first_not_of('-'), argument.size());
  const std::string name =
      "--" + argument.substr(begin, std::min(argument.find('='), argument.size()) - begin);
  const std::vector<std::string> own = flags_of(command);
  if (std::ranges::find(own, name) != own.end()) return "; did you mean " + name + "?";
  std::vector<std::string> names;
  for (const std::string& one : own) names.push_back(one.substr(2));
  std::string nearest = flag_of_other_programs(name.substr(2));
  if (std::ranges::find(names, nearest.substr(0, nearest.find(' '))) != names.end())
    return fmt::format("; did you mean --{}?", nearest);
  std::vector<std::string> others;
  for (const CLI::App* other : app.get_subcommands(nullptr))
    if (other != &command && other->get_option_no_throw(name) != nullptr)
      others.push_back("lockstep " + other->get_name());
  if (!others.empty()) return fmt::format("; it is a flag of {}", fmt::join(others, ", "));
  nearest = engine::nearest(name.substr(2), names);
  return nearest.empty() ? nearest : "; did you mean --" + nearest + "?";
}

// Returns the parser's text, which begins with the first name of a flag, with the name by which the
// flag was given: "--lr: must be ...".
std::string as_given(const CLI::App& command, const std::string& said,
                     const std::vector<std::string>& arguments) {
  const std::string flag = said.substr(0, said.find(':'));
  const CLI::Option* option = command.get_option_no_throw(flag);
  if (option == nullptr) return said;
  const std::vector<std::string> names = spellings(*option);
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (std::ranges::find(names, name) != names.end()) return name + said.substr(flag.size());
  }
  return said;
}

// Returns the parser's error in lockstep's words, with a pointer to --help. The first of the
// arguments is the command.
std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  std::vector<std::string> known;
  for (const CLI::App* each : app.get_subcommands(nullptr)) {
    known.push_back(each->get_name());
    if (each->get_name() != command) continue;
    const auto with_help = [&](const std::string& text, const char* more = "") {
      return fmt::format("{}{} lockstep {} --help lists the flags{}", text,
                         text.ends_with("?") ? "" : ";", command, more);
    };
    std::vector<std::string> left = app.remaining(true);
    left.erase(std::ranges::find(left, "--"), left.end());
    const auto flag = std::find_if(left.begin(), left.end(), [](const std::string& argument) {
      return argument.starts_with("-");
    });
    if (flag != left.end())
      return with_help(
          fmt::format("unknown flag '{}'{}", engine::brief(*flag), meant(app, *each, *flag)));
    if (!left.empty())
      return with_help(fmt::format("unexpected argument '{}'{}", engine::brief(left[0]),
                                   meant(app, *each, left[0])),
                       ", which begin with --");
    const std::string said = lacks_value(error) ? value_wanted(*each, error.what()) : error.what();
    return with_help(as_given(*each, said, arguments));
  }
  const std::string commands = fmt::format("{} (lockstep --help)", fmt::join(known, ", "));
  if (command.empty()) return "no command; known: " + commands;
  if (command.starts_with("-"))
    return fmt::format("unknown flag '{}'; a command must come first: {}", engine::brief(command),
                       commands);
  const std::string hint = engine::did_you_mean(command, known);
  return fmt::format("unknown command '{}'{} known: {}", engine::brief(command),
                     hint.empty() ? ";" : hint, commands);
}

int run(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", 0);  // lockstep reports errors once, itself
  CLI::App app{
      "Synchronous data-parallel training: every device holds a mirror of the model. In every "
      "step\nan all-reduce sums the gradients, and every mirror applies the same update.",
      "lockstep"};
  app.set_version_flag("--version", "lockstep " + std::string(engine::version()),
                       "print the version and exit");
  app.set_help_flag("-h,--help", "print this help and exit");
  const auto formatter = std::make_shared<Help>(
      std::ranges::any_of(std::span(argv, std::size_t(argc)),
                          [](const char* one) { return std::string_view(one) == "-h"; }));
  formatter->label("SUBCOMMAND", "COMMAND");
  app.formatter(formatter);  // for the commands, too
  app.require_subcommand(1);
  app.footer(
      "lockstep COMMAND -h lists the flags of a command in a line each, --help with all values.");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  CLI::App* train = app.add_subcommand("train", "train a model");
  CLI::App* predict = app.add_subcommand(
      "predict", "print predicted labels and probabilities (CSV) from a checkpoint");
  CLI::App* plan = app.add_subcommand(
      "plan", "show the all-reduce algorithm for each size on a cluster, and why");
  CLI::App* bench = app.add_subcommand("bench", "time collectives on this machine");
  CLI::App* serve =
      app.add_subcommand("serve", "run a server of a parameter server job, or show its status");
  CLI::App* render = app.add_subcommand("render", "print manifests that start a job on Kubernetes");
  CLI::App* doctor = app.add_subcommand(
      "doctor", "show what this machine and this build have, and what is missing");
  CLI::App* completion =
      app.add_subcommand("completion", "print a script that completes flags in bash, zsh or fish");
  CLI::App* man = app.add_subcommand("man", "print the manual page");
  for (CLI::App* command : app.get_subcommands({})) command->group("Commands");
  const Command run_train = add_train(*train);
  const Command run_predict = add_predict(*predict);
  const Command run_plan = add_plan(*plan);
  const Command run_bench = add_bench(*bench);
  const Command run_serve = add_serve(*serve);
  const Command run_render = add_render(*render);
  const Command run_doctor = add_doctor(*doctor);
  const Command run_completion = add_completion(*completion);
  const Command run_man = add_man(*man);
  std::vector<std::string> arguments(argv + 1, argv + std::max(argc, 1));
  if (!arguments.empty() && arguments[0] == "version") arguments[0] = "--version";
  if (!arguments.empty() && arguments[0] == "help") {  // "help train" is "train --help"
    std::rotate(arguments.begin(), arguments.begin() + 1, arguments.end());
    arguments.back() = "--help";
  }
  const std::string command = arguments.empty() ? "" : arguments[0];
  Program program{argc, argv};
  const bool wants_help = std::ranges::any_of(
      arguments, [](const std::string& one) { return one == "--help" || one == "-h"; });
  if (command == train->get_name() && !wants_help) {
    program.configured = together([&] { return with_config(*train, std::move(arguments)); });
    arguments = program.configured.arguments;
  }
  try {
    // CLI11 expects the arguments in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == int(CLI::ExitCodes::Success)) {  // --help
      std::ostringstream help;
      app.exit(error, help, help);
      if (speaks_for_all()) print(help.str());
      return kDone;
    }
    leave_together(kUsage, what_is_wrong(app, error, arguments));
  }
  if (speaks_for_all()) warn_of_misspelled_variables(engine::Log());
  if (train->parsed()) return run_train(program);
  if (predict->parsed()) return run_predict(program);
  if (plan->parsed()) return run_plan(program);
  if (bench->parsed()) return run_bench(program);
  if (serve->parsed()) return run_serve(program);
  if (render->parsed()) return run_render(program);
  if (completion->parsed()) return run_completion(program);
  if (man->parsed()) return run_man(program);
  return run_doctor(program);
}

}  // namespace
}  // namespace lockstep::tools

int main(int argc, char** argv) {
  namespace tools = lockstep::tools;
  try {
    tools::ignore_write_signals();
    tools::never_wait_for_standard_error();
    lockstep::strategies::name_task();
    return tools::run(argc, argv);
  } catch (const lockstep::engine::Error& error) {
    const tools::ExitCode code = tools::exit_code(error.code());
    if (code == tools::kTryAgain) tools::leave_with_survivors(code, error);
    // Each process reports its own defect.
    if (code == tools::kDefect) {
      tools::complain(tools::message(error));
      tools::leave(code);
    }
    tools::leave_in_turn(code, tools::message(error));
  } catch (const std::bad_alloc&) {
    tools::complain("out of memory");
    tools::leave(tools::kSystem);
  } catch (const std::system_error& error) {
    const bool threads = error.code() == std::errc::resource_unavailable_try_again;
    tools::complain(fmt::format("the system refuses: {}{}", error.what(),
                                threads ? "; are more threads or processes needed than ulimit -u, "
                                          "or the container, allows?"
                                        : ""));
    tools::leave(tools::kSystem);
  } catch (const std::exception& error) {
    tools::complain(error.what());
    tools::leave(tools::kDefect);
  }
}
