// The arguments of a command as plain data. One description serves the parser
// and its help (tools/syntax/command_line.cc), the shells' completion
// (completion.h) and the manual page (man_page.h).
//
// A new command is a struct in tools/syntax/command_line.h, a function that
// describes it (commands.h), a place in the list of root.cc, and a Run in
// tools/commands/commands.h.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "tools/syntax/command_line.h"

namespace delink::tools {

// Returns what is wrong with the text of an argument, or an empty string.
using ArgumentCheck = std::function<std::string(const std::string&)>;

// With the messages of argument_text.h.
ArgumentCheck WholeNumber(int64_t least,
                          int64_t most = std::numeric_limits<int64_t>::max());
ArgumentCheck Number(double least, double most);

// The value of an option whose value is optional: --name or --name=VALUE.
struct OptionalText {
  bool given = false;
  std::string value;  // empty without one
};

// Where an argument is stored. A bool makes it a flag; a vector lets it repeat.
using ArgumentTarget =
    std::variant<bool*, int64_t*, uint64_t*, double*, std::string*,
                 std::vector<std::string>*, OptionalText*>;

// What a value names.
enum class Names : uint8_t { kNothing, kFile, kFolder, kPath };

struct ArgumentSyntax {
  // "--out"; for a positional argument its name in the help, "RECIPE".
  std::string name;
  std::string value = "";  // name of an option's value in the help
  ArgumentTarget to = static_cast<bool*>(nullptr);
  std::string help = "";
  bool required = false;     // an option; a positional argument always is
  std::string or_else = "";  // an option: one of the two is required
  Names names = Names::kNothing;
  bool must_exist = false;                // the named file or folder
  std::vector<std::string> choices = {};  // if not empty, all allowed values
  ArgumentCheck check = nullptr;
  std::vector<std::string> excludes = {};  // options not allowed with it
  std::vector<std::string> needs = {};     // options required with it

  bool positional() const { return name.front() != '-'; }
  bool flag() const { return std::holds_alternative<bool*>(to); }
  bool repeats() const {
    return std::holds_alternative<std::vector<std::string>*>(to);
  }
  bool value_optional() const {
    return std::holds_alternative<OptionalText*>(to);
  }
};

struct CommandSyntax {
  std::string name;
  std::string summary;
  std::vector<std::string> examples = {};
  std::string notes = "";  // below the examples
  std::vector<ArgumentSyntax> arguments = {};
  std::vector<CommandSyntax> commands = {};  // of which one must be named
  // Makes the command from its arguments' targets, which it keeps alive.
  std::function<Command()> make = nullptr;
};

// Further options: help of every command, and the program's version.
inline constexpr char kHelpFlags[] = "-h,--help";
inline constexpr char kHelpHelp[] = "print this help and exit";
inline constexpr char kVersionFlag[] = "--version";
inline constexpr char kVersionHelp[] = "print the version and exit";

// Help of DIR and CHECKPOINT, which mean the same in every command.
inline constexpr char kCorpusHelp[] =
    "a corpus, or its train or validation folder";
inline constexpr char kCheckpointHelp[] =
    "a step folder, or a run folder (its newest whole checkpoint)";

}  // namespace delink::tools
