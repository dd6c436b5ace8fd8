// The words that a command understands, as plain data. One description serves
// the parser and its help (tools/syntax/command_line.cc), the completion of
// shells (completion.h) and the manual page (man_page.h).
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

// What is wrong with the text of an argument; empty when nothing is.
using ArgumentCheck = std::function<std::string(const std::string&)>;

// In argument_text.h's words.
ArgumentCheck WholeNumber(int64_t least,
                          int64_t most = std::numeric_limits<int64_t>::max());
ArgumentCheck Number(double least, double most);

// The value of an option that may go without one: --name or --name=VALUE.
struct OptionalText {
  bool given = false;
  std::string value;  // empty without one
};

// Where an argument goes. A bool makes it a flag; a vector lets it repeat.
using ArgumentTarget =
    std::variant<bool*, int64_t*, uint64_t*, double*, std::string*,
                 std::vector<std::string>*, OptionalText*>;

// What a value names.
enum class Names : uint8_t { kNothing, kFile, kFolder, kPath };

struct ArgumentSyntax {
  // "--out"; of a positional argument "RECIPE", what the help calls it.
  std::string name;
  std::string value = "";  // what the help calls an option's value
  ArgumentTarget to = static_cast<bool*>(nullptr);
  std::string help = "";
  bool required = false;     // an option; a positional argument always is
  std::string or_else = "";  // an option: one of the two is to be given
  Names names = Names::kNothing;
  bool must_exist = false;                // what it names
  std::vector<std::string> choices = {};  // all that it may be, where not empty
  ArgumentCheck check = nullptr;
  std::vector<std::string> excludes = {};  // options not to be given with it
  std::vector<std::string> needs = {};     // options to be given with it

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
  // The command, once its arguments are at their targets, which it keeps alive.
  std::function<Command()> make = nullptr;
};

// What every command understands besides.
inline constexpr char kHelpFlags[] = "-h,--help";
inline constexpr char kHelpHelp[] = "print this help and exit";
inline constexpr char kVersionFlag[] = "--version";
inline constexpr char kVersionHelp[] = "print the version and exit";

// DIR and CHECKPOINT, as every command understands them.
inline constexpr char kCorpusHelp[] =
    "a corpus, or its train or validation "
    "folder";
inline constexpr char kCheckpointHelp[] =
    "a step folder, or a run folder (its newest whole checkpoint)";

}  // namespace delink::tools
