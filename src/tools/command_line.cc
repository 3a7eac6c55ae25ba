// SPDX-License-Identifier: MIT
// The only file that sees CLI11 and toml++: both cost seconds per including file.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <system_error>
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "base/file.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/nearest_name.h"
#include "tools/version.h"

namespace deepinfer {
namespace {
CLI::App* app_of(void* app) { return static_cast<CLI::App*>(app); }

// Our own check: the library's lets NaN and empty words through.
template <class T>
CLI::Validator within(Allowed<T> allowed) {
  const auto check = [allowed](std::string& word) {
    T value{};
    const bool is_number = !word.empty() && CLI::detail::lexical_cast(word, value);
    if (is_number && value >= allowed.least && value <= allowed.most) return std::string();
    return fmt::format("expected {} from {} to {}, found '{}'", std::is_integral_v<T> ? "a whole number" : "a number",
                       allowed.least, allowed.most, word);
  };
  return CLI::Validator(check, "");
}
}  // namespace

void OptionSet::note(const std::string& name, const std::string& text, bool takes_value,
                     std::vector<std::string> choices) {
  summaries_.push_back({name.starts_with("--") ? name : "", takes_value, std::move(choices), text});
}

void OptionSet::flag(const std::string& name, bool& value, const std::string& text) {
  app_of(app_)->add_flag(name, value, text);
  note(name, text, false);
}
void OptionSet::add(const std::string& name, std::string& value, const std::string& text) {
  app_of(app_)->add_option(name, value, text);
  note(name, text);
}
void OptionSet::add(const std::string& name, int64_t& value, const std::string& text) {
  app_of(app_)->add_option(name, value, text);
  note(name, text);
}
void OptionSet::add(const std::string& name, double& value, const std::string& text) {
  app_of(app_)->add_option(name, value, text);
  note(name, text);
}
void OptionSet::add(const std::string& name, int64_t& value, Allowed<int64_t> allowed, const std::string& text) {
  app_of(app_)->add_option(name, value, text)->check(within(allowed));
  note(name, text);
}
void OptionSet::add(const std::string& name, double& value, Allowed<double> allowed, const std::string& text) {
  app_of(app_)->add_option(name, value, text)->check(within(allowed));
  note(name, text);
}
void OptionSet::add(const std::string& name, std::vector<std::string>& values, const std::string& text) {
  app_of(app_)->add_option(name, values, text)->allow_extra_args(false);
  note(name, text);
}
void OptionSet::choice(const std::string& name, std::string& value, const std::vector<std::string>& allowed,
                       const std::string& text) {
  app_of(app_)->add_option(name, value, text)->check(CLI::IsMember(allowed));
  note(name, text, true, allowed);
}
void OptionSet::positional(const std::string& name, std::string& value, const std::string& text, bool required) {
  app_of(app_)->add_option(name, value, text)->required(required);
  note(name, text);
}
void OptionSet::positional(const std::string& name, std::vector<std::string>& values, const std::string& text) {
  app_of(app_)->add_option(name, values, text);
  note(name, text);
}

std::vector<OptionSummary> options_of(const Command& command) {
  CLI::App app;
  OptionSet options(&app);
  if (command.declare) command.declare(options);
  return options.summaries();
}

namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// What a file may set: everything but --help and --config.
std::vector<std::string> config_names(const CLI::App& app) {
  std::vector<std::string> names = option_names(app);
  std::erase_if(names, [](const std::string& name) { return name == "--help" || name == "--config"; });
  return names;
}

Result<std::string> scalar_text(const std::string& key, const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  return invalid_argument(fmt::format("configuration: \"{}\": expected text or a number", key));
}

// One key of the configuration file as command-line words; the command line itself comes later and wins.
Status append_config_key(const CLI::App& app, const std::string& key, const toml::node& node,
                         std::vector<std::string>& words) {
  const std::string name = "--" + key;
  const std::vector<std::string> known = config_names(app);
  if (std::find(known.begin(), known.end(), name) == known.end())
    return invalid_argument(fmt::format("configuration: unknown key \"{}\"{}", key, did_you_mean(name, known)));
  const bool is_flag = app.get_option(name)->get_items_expected_max() == 0;
  const auto* truth = node.as_boolean();
  if (is_flag != (truth != nullptr))
    return invalid_argument(fmt::format("configuration: \"{}\": expected {}", key,
                                        is_flag ? "true or false" : "text or a number, not true or false"));
  if (truth) {
    if (truth->get()) words.push_back(name);
    return {};
  }
  if (const auto* list = node.as_array()) {
    for (const toml::node& item : *list) {
      ASSIGN_OR_RETURN(std::string text, scalar_text(key, item));
      words.push_back(name);
      words.push_back(std::move(text));
    }
    return {};
  }
  ASSIGN_OR_RETURN(std::string text, scalar_text(key, node));
  words.push_back(name);
  words.push_back(std::move(text));
  return {};
}

// Removes --config FILE or --config=FILE from the words; empty when there is none.
Result<std::string> take_config_path(std::vector<std::string>& words) {
  constexpr std::string_view kJoined = "--config=";
  std::string path;
  for (size_t i = 0; i < words.size();) {
    const bool is_joined = words[i].starts_with(kJoined);
    if (!is_joined && (words[i] != "--config" || i + 1 == words.size())) {
      ++i;
      continue;
    }
    if (!path.empty()) return invalid_argument("--config: may be given once");
    path = is_joined ? words[i].substr(kJoined.size()) : words[i + 1];
    if (path.empty()) return invalid_argument("--config: expected the name of a file");
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(at, at + (is_joined ? 1 : 2));
  }
  return path;
}

// --config FILE: keys are option names; options already on the command line are skipped.
Status expand_config(const CLI::App& app, std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const std::string path, take_config_path(words));
  if (path.empty()) return {};
  ASSIGN_OR_RETURN(const std::string toml_text, read_file(path, size_t{1} << 20));
  const toml::parse_result parsed = toml::parse(toml_text, path);
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

// Results that did not reach standard output are work that failed.
int check_stdout(int status) {
  const bool is_whole = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int error = errno;
  if ((is_whole && std::cout.flush()) || status != 0) return status;
  fmt::print(stderr, "deepinfer: standard output: {}\n", is_whole ? "cannot be written" : std::strerror(error));
  return 1;
}

int run_to_end(const Command& command) {
  int status = 1;
  try {  // {fmt} reports a closed or full standard output by an exception; it ends here
    status = command.run();
  } catch (const std::system_error& error) {
    fmt::print(stderr, "deepinfer: standard output: {}\n", error.code().message());
    return 1;
  }
  return check_stdout(status);
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
    return check_stdout(0);
  } catch (const CLI::ExtrasError&) {
    for (const std::string& word : app.remaining())
      if (word.starts_with("-"))
        return usage_error(command.name,
                           fmt::format("unknown option {}{}", word, did_you_mean(word, option_names(app))));
    return usage_error(command.name, fmt::format("unexpected argument '{}'", app.remaining().front()));
  } catch (const CLI::ParseError& error) { return usage_error(command.name, error.what()); }
  return run_to_end(command);
}

}  // namespace

int run_command_line(int argc, char** argv, const std::vector<Command>& commands) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_overview(commands);
    return words.empty() ? 2 : check_stdout(0);
  }
  if (words[0] == "--version") {
    fmt::print("{}", version_text());
    return check_stdout(0);
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
