// SPDX-License-Identifier: MIT
// A subcommand of `deepinfer`: one file, one function `Command x_command()`, one line in commands.cc.
// Exit status: 0 done, 1 the work failed (message on stderr), 2 wrong usage, 130 interrupted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace deepinfer {

// Values that an option takes, both ends included; anything else is wrong usage.
template <class T>
struct Allowed {
  T least, most;
};

// An option as shells complete it.
struct OptionSummary {
  std::string name;  // "--model"; empty for a positional
  bool takes_value = true;
  std::vector<std::string> choices;  // empty: anything, a file name for instance
  std::string text;
};

// Options of one subcommand, bound to variables that outlive the run. A help text states unit and default.
class OptionSet {
 public:
  void flag(const std::string& name, bool& value, const std::string& text);
  void add(const std::string& name, std::string& value, const std::string& text);
  void add(const std::string& name, int64_t& value, const std::string& text);
  void add(const std::string& name, double& value, const std::string& text);
  void add(const std::string& name, int64_t& value, Allowed<int64_t> allowed, const std::string& text);
  void add(const std::string& name, double& value, Allowed<double> allowed, const std::string& text);
  void add(const std::string& name, std::vector<std::string>& values, const std::string& text);  // may repeat
  void choice(const std::string& name, std::string& value, const std::vector<std::string>& allowed,
              const std::string& text);
  void positional(const std::string& name, std::string& value, const std::string& text, bool required = true);
  void positional(const std::string& name, std::vector<std::string>& values, const std::string& text);

  explicit OptionSet(void* app) : app_(app) {}  // for command_line.cc, which alone sees the option library
  const std::vector<OptionSummary>& summaries() const { return summaries_; }

 private:
  void note(const std::string& name, const std::string& text, bool takes_value = true,
            std::vector<std::string> choices = {});
  void* app_;
  std::vector<OptionSummary> summaries_;
};

struct Command {
  std::string name;
  std::string summary;   // one line
  std::string examples;  // two lines of shell, shown by --help
  std::function<void(OptionSet&)> declare;
  std::function<int()> run;  // prints its results; returns the exit status
};

// All subcommands, in the order of --help (commands.cc).
std::vector<Command> all_commands();

// Parses argv, reads --config, runs one command. Returns the exit status: 1 also when standard output took less than
// all results.
int run_command_line(int argc, char** argv, const std::vector<Command>& commands);

// What a command takes, without running it.
std::vector<OptionSummary> options_of(const Command& command);

// Prints a failed status as "deepinfer: message" and gives exit status 1; 0 when ok; 130 after Ctrl-C.
int exit_status(const Status& status);

}  // namespace deepinfer
