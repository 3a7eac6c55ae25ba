// SPDX-License-Identifier: MIT
// The only file that sees CLI11 and toml++: both cost seconds per including file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/nearest_name.h"
#include "tools/version.h"

namespace deepinfer {
namespace {
CLI::App* app_of(void* app) { return static_cast<CLI::App*>(app); }
}  // namespace

void OptionSet::flag(const std::string& name, bool& value, const std::string& text) {
  app_of(app_)->add_flag(name, value, text);
}
void OptionSet::add(const std::string& name, std::string& value, const std::string& text) {
  app_of(app_)->add_option(name, value, text);
}
void OptionSet::add(const std::string& name, int64_t& value, const std::string& text) {
  app_of(app_)->add_option(name, value, text);
}
void OptionSet::add(const std::string& name, double& value, const std::string& text) {
  app_of(app_)->add_option(name, value, text);
}
void OptionSet::add(const std::string& name, std::vector<std::string>& values, const std::string& text) {
  app_of(app_)->add_option(name, values, text)->allow_extra_args(false);
}
void OptionSet::choice(const std::string& name, std::string& value, const std::vector<std::string>& allowed,
                       const std::string& text) {
  app_of(app_)->add_option(name, value, text)->check(CLI::IsMember(allowed));
}
void OptionSet::positional(const std::string& name, std::string& value, const std::string& text, bool required) {
  app_of(app_)->add_option(name, value, text)->required(required);
}
void OptionSet::positional(const std::string& name, std::vector<std::string>& values, const std::string& text) {
  app_of(app_)->add_option(name, values, text);
}

namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  return {};
}

// One key of the configuration file as command-line words; the command line itself comes later and wins.
Status append_config_key(const CLI::App& app, const std::string& key, const toml::node& node,
                         std::vector<std::string>& words) {
  const std::string name = "--" + key;
  const std::vector<std::string> known = option_names(app);
  if (std::find(known.begin(), known.end(), name) == known.end())
    return invalid_argument(fmt::format("configuration: unknown key \"{}\"{}", key, did_you_mean(name, known)));
  if (const auto* truth = node.as_boolean()) {
    if (truth->get()) words.push_back(name);
    return {};
  }
  if (const auto* list = node.as_array()) {
    for (const toml::node& item : *list) {
      words.push_back(name);
      words.push_back(scalar_text(item));
    }
    return {};
  }
  words.push_back(name);
  words.push_back(scalar_text(node));
  return {};
}

// --config FILE: keys are option names; options already on the command line are skipped.
Status expand_config(const CLI::App& app, std::vector<std::string>& words) {
  const auto at = std::find(words.begin(), words.end(), "--config");
  if (at == words.end() || at + 1 == words.end()) return {};
  const std::string path = *(at + 1);
  words.erase(at, at + 2);
  const toml::parse_result parsed = toml::parse_file(path);
  if (!parsed) {
    const auto& where = parsed.error().source().begin;
    return invalid_argument(fmt::format("{}:{}:{}: {}", path, where.line, where.column, parsed.error().description()));
  }
  std::vector<std::string> from_file;
  for (const auto& [key, node] : parsed.table()) {
    const std::string name = "--" + std::string(key.str());
    const bool given = std::any_of(words.begin(), words.end(),
                                   [&](const std::string& w) { return w == name || w.starts_with(name + "="); });
    if (!given) TRY(append_config_key(app, std::string(key.str()), node, from_file));
  }
  words.insert(words.begin(), from_file.begin(), from_file.end());
  return {};
}

int usage_error(const std::string& command, const std::string& message) {
  fmt::print(stderr, "deepinfer: {}\nTry 'deepinfer{} --help'.\n", message, command.empty() ? "" : " " + command);
  return 2;
}

void print_overview(const std::vector<Command>& commands) {
  fmt::print("deepinfer: serve DeepSeek-V4.1-Flash\n\nUsage: deepinfer COMMAND [options]\n\nCommands:\n");
  for (const Command& c : commands) fmt::print("  {:<10} {}\n", c.name, c.summary);
  fmt::print(
      "\n'deepinfer COMMAND --help' explains one command; 'deepinfer --version' says what was built.\n\n"
      "Examples:\n  deepinfer generate --prompt 'What is 12 + 30?'\n  deepinfer inspect --model mini\n");
}

int parse_and_run(const Command& command, std::vector<std::string> words) {
  CLI::App app(command.summary, "deepinfer " + command.name);
  app.footer("\nExamples:\n" + command.examples);
  OptionSet options(&app);
  if (command.declare) command.declare(options);
  app.add_option("--config", "TOML file with any of these options; the command line wins");
  if (const Status s = expand_config(app, words); !s.ok()) return usage_error(command.name, s.message());
  try {  // CLI11 reports by exceptions; they end here
    std::reverse(words.begin(), words.end());
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ExtrasError&) {
    for (const std::string& word : app.remaining())
      if (word.starts_with("-"))
        return usage_error(command.name,
                           fmt::format("unknown option {}{}", word, did_you_mean(word, option_names(app))));
    return usage_error(command.name, fmt::format("unexpected argument '{}'", app.remaining().front()));
  } catch (const CLI::ParseError& error) { return usage_error(command.name, error.what()); }
  return command.run();
}

}  // namespace

int run_command_line(int argc, char** argv, const std::vector<Command>& commands) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_overview(commands);
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    fmt::print("{}", version_text());
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (command.name == words[0]) return parse_and_run(command, {words.begin() + 1, words.end()});
    names.push_back(command.name);
  }
  return usage_error("", fmt::format("unknown command '{}'{}", words[0], did_you_mean(words[0], names)));
}

int exit_status(const Status& status) {
  if (interrupted()) return 130;
  if (status.ok()) return 0;
  fmt::print(stderr, "deepinfer: {}\n", status.message());
  return 1;
}

}  // namespace deepinfer
