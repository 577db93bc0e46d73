// SPDX-License-Identifier: MIT
// lockstep man: the manual page lockstep(1) in the format of man(7), made from the parser's own
// table, as --help is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "engine/base/version.h"
#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/help.h"
#include "tools/standard_streams.h"

namespace lockstep::tools {
namespace {

// Returns the text as troff prints it literally: what it would print as typographic characters can
// be pasted, and no line begins with a request.
std::string plain(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '.' && (result.empty() || result.back() == '\n')) result += "\\&";
    switch (c) {
      case '-':
        result += "\\-";
        break;
      case '\\':
        result += "\\e";
        break;
      case '~':
        result += "\\(ti";
        break;
      case '^':
        result += "\\(ha";
        break;
      case '`':
        result += "\\(ga";
        break;
      case '\'':
        result += "\\(aq";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string option_entry(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : spellings(option))
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", plain(name));
  if (names.empty())
    names = fmt::format("\\fI{}\\fR", plain(option.get_name()));
  else if (value_kind(option) != ValueKind::kNone)
    names += value_kind(option) == ValueKind::kText ? " \\fITEXT\\fR" : " \\fINUMBER\\fR";
  return fmt::format(".TP\n{}\n{}\n", names, plain(full_description(option)));
}

std::string command_section(const CLI::App& command) {
  std::string page = fmt::format(".SH \"lockstep {0}\"\n.B lockstep {0}\n\\- {1}\n",
                                 command.get_name(), plain(command.get_description()));
  std::string group;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group() != group) {
      group = option->get_group();
      page += fmt::format(".SS \"{}\"\n", plain(group));
    }
    page += option_entry(*option);
  }
  const std::string examples = command.get_footer();
  return examples.empty() ? page : page + ".PP\n.nf\n" + plain(examples) + "\n.fi\n";
}

std::string entry(const std::string& name, const std::string& text) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", plain(name), plain(text));
}

std::string man_page(const CLI::App& program) {
  std::string page = fmt::format(
      ".TH LOCKSTEP 1 \"\" \"lockstep {}\"\n.SH NAME\nlockstep \\- synchronous data\\-parallel "
      "training\n.SH SYNOPSIS\n.B lockstep\n.I COMMAND\n[\\fIflags\\fR]\n.SH DESCRIPTION\n{}\n",
      engine::version(), plain(program.get_description()));
  page +=
      "Results go to standard output, everything else to standard error. train shows its progress "
      "on standard error; its result is printed with \\-\\-json or \\-\\-quiet.\n";
  for (const CLI::App* command : program.get_subcommands(nullptr))
    page += entry(command->get_name(), command->get_description());
  page += ".SS \"Without a command\"\n";
  for (const CLI::Option* option : program.get_options()) page += option_entry(*option);
  for (const CLI::App* command : program.get_subcommands(nullptr))
    page += command_section(*command);
  page += ".SH EXIT STATUS\n";
  for (const ExitMeaning& exit : exit_meanings()) page += entry(exit.code, exit.meaning);
  page += ".SH ENVIRONMENT\n";
  page += entry("TF_CONFIG", "cluster and task of this process, as in TensorFlow");
  page += entry("LOCKSTEP_RANK, LOCKSTEP_RANKS, LOCKSTEP_RENDEZVOUS",
                "as --rank, --ranks and --rendezvous");
  page += entry("LOCKSTEP_SECRET, LOCKSTEP_SECRET_FILE",
                "secret that processes of several hosts prove to know, or a file that holds it");
  page += entry("XDG_CACHE_HOME", "parent of the folder of measured costs, instead of ~/.cache");
  page += ".SH FILES\n";
  page += entry("~/.cache/lockstep",
                "measured costs of ranks and links, and the fastest kernels of GPUs");
  return page;
}

}  // namespace

Command add_man(CLI::App& app) {
  end_help(app, "  lockstep man | man -l -");
  return [&app](const Program&) {
    print(man_page(*app.get_parent()));
    return int(kDone);
  };
}

}  // namespace lockstep::tools
