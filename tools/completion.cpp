// SPDX-License-Identifier: MIT
// lockstep completion SHELL: prints a script with which a shell completes commands, flags and
// values. It is made from the parser's own table, as --help is, so both know the same flags.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tools/bounds.h"
#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/help.h"
#include "tools/standard_streams.h"

namespace lockstep::tools {
namespace {

// Returns the text with a backslash before each of the characters.
std::string with_backslashes(const std::string& text, const std::string& characters) {
  std::string result;
  for (const char c : text) {
    if (characters.find(c) != std::string::npos) result += '\\';
    result += c;
  }
  return result;
}

// Returns the text for a place between single quotes of bash or zsh.
std::string in_single_quotes(const std::string& text) {
  return CLI::detail::find_and_replace(text, "'", "'\\''");
}

std::string bash(CLI::App& program) {
  std::string values, flags;
  for (CLI::App* command : program.get_subcommands(nullptr)) {
    std::vector<std::string> all;
    for (CLI::Option* option : command->get_options()) {
      const std::vector<std::string> names = spellings(*option);
      const std::vector<std::string> words = completions_of(*option).values;
      all.insert(all.end(), names.begin(), names.end());
      if (names.empty()) all.insert(all.end(), words.begin(), words.end());
      if (names.empty() || words.empty()) continue;
      std::vector<std::string> places;
      for (const std::string& name : names) places.push_back(command->get_name() + "/" + name);
      values +=
          fmt::format("    {}) words='{}' ;;\n", fmt::join(places, "|"), fmt::join(words, " "));
    }
    flags += fmt::format("      {}) words='{}' ;;\n", command->get_name(), fmt::join(all, " "));
  }
  std::vector<std::string> commands{"--version", "--help"};
  for (CLI::App* command : program.get_subcommands(nullptr))
    commands.push_back(command->get_name());
  // Readline breaks words at "=", so the flag of "--model=x" stands two words before x.
  return fmt::format(R"(# Completion of lockstep for bash, made by `lockstep completion bash`.
_lockstep() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} flag=${{COMP_WORDS[COMP_CWORD-1]}} words=
  [[ $current == = ]] && current=
  [[ $flag == = ]] && flag=${{COMP_WORDS[COMP_CWORD-2]}}
  case ${{COMP_WORDS[1]}}/$flag in
{}    *) if ((COMP_CWORD == 1)); then words='{}'
    elif [[ $current == -* || ${{COMP_WORDS[1]}} == completion ]]; then case ${{COMP_WORDS[1]}} in
{}    esac; fi ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _lockstep lockstep
)",
                     values, fmt::join(commands, " "), flags);
}

// Returns one argument of zsh's _arguments: '(-b --min)'{-b,--min=}'[smallest size]:value: '.
std::string zsh_argument(CLI::Option& option) {
  const bool takes_value = value_kind(option) != ValueKind::kNone;
  const Completions found = completions_of(option);
  std::vector<std::string> names = spellings(option);
  std::string value;
  if (takes_value) {
    value = fmt::format(":{}:{}", names.empty() ? option.get_name() : "value",
                        !found.values.empty() ? fmt::format("({})", fmt::join(found.values, " "))
                        : found.files         ? "_files"
                                              : " ");
  }
  if (names.empty()) return fmt::format("'1{}'", value);
  const std::string text =
      in_single_quotes(fmt::format("[{}]{}", with_backslashes(summary(option), "[]:\\"), value));
  const std::string instead = fmt::format("{}", fmt::join(names, " "));
  if (takes_value)
    for (std::string& name : names)
      if (name.starts_with("--")) name += "=";  // the value is behind it, or the next word
  if (names.size() == 1) return fmt::format("'{}{}'", names[0], text);
  return fmt::format("'({})'{{{}}}'{}'", instead, fmt::join(names, ","), text);
}

std::string zsh(CLI::App& program) {
  std::string commands, flags;
  for (CLI::App* command : program.get_subcommands(nullptr)) {
    commands += fmt::format("      '{}:{}'\n", command->get_name(),
                            in_single_quotes(with_backslashes(command->get_description(), ":\\")));
    flags += fmt::format("    {}) _arguments", command->get_name());
    for (CLI::Option* option : command->get_options())
      flags += " \\\n      " + zsh_argument(*option);
    flags += " ;;\n";
  }
  return fmt::format(R"(#compdef lockstep
# Completion of lockstep for zsh, made by `lockstep completion zsh`.
_lockstep() {{
  if ((CURRENT == 2)); then
    local -a commands=(
{}      '--version:print the version and exit'
      '--help:print the commands and exit'
    )
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _lockstep ]]; then _lockstep "$@"; else compdef _lockstep lockstep; fi
)",
                     commands, flags);
}

std::string fish(CLI::App& program) {
  // fish reads two escapes between single quotes: that of the quote, and that of the backslash.
  const auto text = [](const std::string& plain) {
    return "'" + with_backslashes(plain, "'\\") + "'";
  };
  std::string lines =
      "# Completion of lockstep for fish, made by `lockstep completion fish`.\n"
      "function __lockstep_command\n"
      "  set -l words (commandline -opc)\n"
      "  test \"$words[2]\" = $argv[1]\n"
      "end\n"
      "complete -c lockstep -n '__lockstep_command \"\"' -l version -l help -f\n";
  for (CLI::App* command : program.get_subcommands(nullptr)) {
    const std::string name = command->get_name();
    lines += fmt::format("complete -c lockstep -n '__lockstep_command \"\"' -f -a {} -d {}\n", name,
                         text(command->get_description()));
    for (CLI::Option* option : command->get_options()) {
      lines += fmt::format("complete -c lockstep -n '__lockstep_command {}'", name);
      for (const std::string& one : option->get_snames()) lines += " -s " + one;
      for (const std::string& one : option->get_lnames()) lines += " -l " + one;
      const Completions found = completions_of(*option);
      lines += value_kind(*option) == ValueKind::kNone ? " -f" : found.files ? " -r -F" : " -x";
      if (!found.values.empty()) lines += fmt::format(" -a '{}'", fmt::join(found.values, " "));
      lines += fmt::format(" -d {}\n", text(summary(*option)));
    }
  }
  return lines;
}

}  // namespace

Command add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "shell that runs the script")
      ->check(one_of({"bash", "zsh", "fish"}))
      ->required();
  end_help(app,
           "  lockstep completion bash > lockstep.bash    # then: source lockstep.bash\n"
           "  lockstep completion zsh > _lockstep         # in a folder of $fpath\n"
           "  lockstep completion fish > ~/.config/fish/completions/lockstep.fish");
  return [&app, shell](const Program&) {
    CLI::App& program = *app.get_parent();
    print(*shell == "bash" ? bash(program) : *shell == "zsh" ? zsh(program) : fish(program));
    return int(kDone);
  };
}

}  // namespace lockstep::tools
