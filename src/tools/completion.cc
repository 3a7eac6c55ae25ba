// SPDX-License-Identifier: MIT
// deepinfer completion: prints what bash, zsh or fish need to complete commands, options and their values. Made from
// the commands themselves, so it cannot lag behind them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "tools/command.h"

namespace deepinfer {
namespace {

std::vector<std::string> words_of(const std::vector<OptionSummary>& options) {
  std::vector<std::string> words{"--help", "--config"};
  for (const OptionSummary& option : options)
    if (!option.name.empty()) words.push_back(option.name);
  return words;
}

// For the inside of single quotes.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

void print_bash(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  fmt::print(
      "# bash completion for deepinfer: source it, or put it into bash's completions folder as `deepinfer`\n"
      "_deepinfer() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=\"\" values=\"\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\"))\n    return\n  fi\n"
      "  case ${{COMP_WORDS[1]}} in\n",
      fmt::join(names, " "));
  for (const Command& command : commands) {
    const std::vector<OptionSummary> options = options_of(command);
    fmt::print("  {})\n    words=\"{}\"\n    case $before in\n", command.name, fmt::join(words_of(options), " "));
    for (const OptionSummary& option : options)
      if (!option.choices.empty())
        fmt::print("    {}) values=\"{}\" ;;\n", option.name, fmt::join(option.choices, " "));
    fmt::print("    esac ;;\n");
  }
  fmt::print(
      "  esac\n"
      "  if [ -n \"$values\" ]; then COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
      "  elif [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  else COMPREPLY=($(compgen -f -- \"$word\")); fi\n"
      "}}\n"
      "complete -o filenames -F _deepinfer deepinfer\n");
}

void print_zsh(const std::vector<Command>& commands) {
  fmt::print("#compdef deepinfer\n_deepinfer() {{\n  if (( CURRENT == 2 )); then\n    local -a commands=(\n");
  for (const Command& command : commands) fmt::print("      '{}:{}'\n", command.name, quoted(command.summary));
  fmt::print(
      "    )\n    _describe command commands\n    return\n  fi\n  local command=$words[2]\n  shift words\n"
      "  (( CURRENT-- ))\n  case $command in\n");
  for (const Command& command : commands) {
    fmt::print("  {})\n    _arguments", command.name);
    for (const OptionSummary& option : options_of(command)) {
      if (option.name.empty()) continue;
      std::string text = quoted(option.text);
      for (char& c : text)  // they have a meaning in such a line
        if (c == '[' || c == ']' || c == ':') c = ' ';
      const std::string values = !option.takes_value      ? ""
                                 : option.choices.empty() ? ":value:_files"
                                                          : fmt::format(":value:({})", fmt::join(option.choices, " "));
      fmt::print(" \\\n      '*{}[{}]{}'", option.name, text, values);
    }
    fmt::print(" \\\n      '*:file:_files' ;;\n");
  }
  fmt::print("  esac\n}}\n_deepinfer \"$@\"\n");
}

void print_fish(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    fmt::print("complete -c deepinfer -n __fish_use_subcommand -a {} -d '{}'\n", command.name, quoted(command.summary));
    for (const OptionSummary& option : options_of(command)) {
      if (option.name.empty()) continue;
      fmt::print("complete -c deepinfer -n '__fish_seen_subcommand_from {}' -l {} -d '{}'{}\n", command.name,
                 option.name.substr(2), quoted(option.text),
                 !option.takes_value      ? ""
                 : option.choices.empty() ? " -r"
                                          : fmt::format(" -x -a '{}'", fmt::join(option.choices, " ")));
    }
  }
}

}  // namespace

Command completion_command() {
  const auto shell = std::make_shared<std::string>();
  return {.name = "completion",
          .summary = "print the completion of commands and options for bash, zsh or fish",
          .examples =
              "  source <(deepinfer completion bash)\n"
              "  deepinfer completion fish > ~/.config/fish/completions/deepinfer.fish\n",
          .declare = [shell](OptionSet& options) { options.positional("SHELL", *shell, "bash, zsh or fish"); },
          .run =
              [shell] {
                const std::vector<Command> commands = all_commands();
                if (*shell == "bash") print_bash(commands);
                else if (*shell == "zsh") print_zsh(commands);
                else if (*shell == "fish") print_fish(commands);
                else {
                  fmt::print(stderr, "deepinfer completion: expected bash, zsh or fish, found '{}'\n", *shell);
                  return 2;
                }
                return 0;
              }};
}

}  // namespace deepinfer
