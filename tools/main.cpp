// SPDX-License-Identifier: MIT
// lockstep: one program, one command a file. Results go to standard output, everything else to
// standard error. Errors are one line; exit codes stand in exit_codes.h.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/version.h"

namespace lockstep::tools {
namespace {

void complain(const std::string& text) {
  std::fputs(fmt::format("lockstep: {}\n", text).c_str(), stderr);
}

// After a failure nothing may wait for peers that are gone, not even the MPI library's end.
[[noreturn]] void leave(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(code);
}

// One line of what the parser found wrong, with the way to help.
int usage(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == int(CLI::ExitCodes::Success)) return app.exit(error);  // --help
  std::string text = error.what();
  for (char& c : text) c = c == '\n' ? ' ' : c;
  complain(text + " (see lockstep --help, lockstep train --help)");
  return kUsage;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Synchronous data-parallel training: every device holds a mirror of the model, every "
      "step the gradients are summed by an all-reduce, every mirror takes the same update.",
      "lockstep"};
  app.set_version_flag("--version", std::string("lockstep ") + version());
  app.require_subcommand(1);
  CLI::App* train = app.add_subcommand("train", "train a model");
  CLI::App* predict = app.add_subcommand("predict", "labels and probabilities from a checkpoint");
  CLI::App* doctor = app.add_subcommand("doctor", "what was found, and what is missing");
  const Command run_train = add_train(*train);
  const Command run_predict = add_predict(*predict);
  const Command run_doctor = add_doctor(*doctor);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return usage(app, error);
  }
  const Program program{argc, argv};
  if (train->parsed()) return run_train(program);
  if (predict->parsed()) return run_predict(program);
  return run_doctor(program);
}

}  // namespace
}  // namespace lockstep::tools

int main(int argc, char** argv) {
  namespace tools = lockstep::tools;
  try {
    return tools::run(argc, argv);
  } catch (const lockstep::engine::Error& error) {
    tools::complain(error.what());
    tools::leave(tools::exit_code(error.code()));
  } catch (const std::bad_alloc&) {
    tools::complain("out of memory");
    tools::leave(tools::kSystem);
  } catch (const std::exception& error) {
    tools::complain(error.what());
    tools::leave(tools::kDefect);
  }
}
