#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tools/syntax/completion.h"
#include "tools/syntax/walk.h"

namespace delink::tools {
namespace {

constexpr char kBashHead[] =
    R"(# bash completion of $P, as `$P completion bash` prints it.
_$P_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current")
}

_$P_names() {
  mapfile -t COMPREPLY < <(compgen "$1" -- "$current")
  compopt -o filenames 2>/dev/null
}

_$P() {
  local command=$P equals='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${COMP_WORDS[i]}" in
)";

constexpr char kBashMiddle[] = R"(      command="$command ${COMP_WORDS[i]}"
      ;;
    esac
  done
  local current=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}
  # --option=value comes as three words.
  if [[ $current == = ]]; then
    equals='=' current=''
  elif [[ $option == = ]]; then
    equals='=' option=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  case "$command $option$equals" in
)";

constexpr char kTail[] = R"(  *=)
    return
    ;;
  esac
  case "$command" in
)";

constexpr char kEnd[] = R"(  esac
}

complete -F _$P $P
)";

std::string BashQuoted(const std::string& text) { return "'" + text + "'"; }

std::string OfProgram(const CommandSyntax& program, const char* text) {
  return absl::StrReplaceAll(text, {{"$P", program.name}});
}

// The code that completes a value.
std::string Action(const ArgumentSyntax& a, const std::string& program) {
  if (!a.choices.empty()) {
    return absl::StrCat("_", program, "_words ",
                        BashQuoted(absl::StrJoin(a.choices, " ")));
  }
  switch (a.names) {
    case Names::kNothing:
      return "";
    case Names::kFolder:
      return absl::StrCat("_", program, "_names -d");
    case Names::kFile:
    case Names::kPath:
      return absl::StrCat("_", program, "_names -f");
  }
  return "";
}

// A branch of the first case: the value of an option.
std::string OptionBranch(const std::string& command, const ArgumentSyntax& a,
                         const std::string& program) {
  const std::string name = absl::StrCat(command, " ", a.name);
  const std::string action = Action(a, program);
  return absl::StrCat(
      "  ", a.value_optional() ? "" : absl::StrCat(BashQuoted(name), " | "),
      BashQuoted(name + "="), ")\n",
      action.empty() ? "" : absl::StrCat("    ", action, "\n"),
      "    return\n    ;;\n");
}

// A branch of the second case: a word that is not an option's value.
std::string CommandBranch(const std::string& full_name,
                          const CommandSyntax& command,
                          const std::string& program) {
  std::vector<std::string> options = absl::StrSplit(kHelpFlags, ',');
  options.push_back(kVersionFlag);
  std::vector<std::string> commands;
  std::string otherwise;
  for (const ArgumentSyntax& a : command.arguments) {
    if (!a.positional()) {
      options.push_back(a.name);
    } else if (otherwise.empty()) {
      otherwise = Action(a, program);
    }
  }
  for (const CommandSyntax& below : command.commands) {
    commands.push_back(below.name);
  }
  const auto words = [&](const std::vector<std::string>& some) {
    return absl::StrCat("_", program, "_words ",
                        BashQuoted(absl::StrJoin(some, " ")));
  };
  if (!commands.empty()) otherwise = words(commands);
  std::string branch = absl::StrCat("  ", BashQuoted(full_name), ")\n");
  if (otherwise.empty()) {
    absl::StrAppend(&branch, "    ", words(options), "\n");
  } else {
    absl::StrAppend(&branch, "    if [[ $current == -* ]]; then\n      ",
                    words(options), "\n    else\n      ", otherwise,
                    "\n    fi\n");
  }
  return branch + "    ;;\n";
}

}  // namespace

std::string BashCompletion(const CommandSyntax& program) {
  std::string script = OfProgram(program, kBashHead);
  absl::StrAppend(&script, "    ",
                  absl::StrJoin(CommandNames(program), " | \\\n      ",
                                [](std::string* out, const std::string& name) {
                                  absl::StrAppend(out, "'", name, "'");
                                }),
                  ")\n", OfProgram(program, kBashMiddle));
  ForEachCommand(program,
                 [&](const std::string& name, const CommandSyntax& command) {
                   for (const ArgumentSyntax& a : command.arguments) {
                     if (a.positional() || a.flag()) continue;
                     script += OptionBranch(name, a, program.name);
                   }
                 });
  script += kTail;
  ForEachCommand(program,
                 [&](const std::string& name, const CommandSyntax& command) {
                   script += CommandBranch(name, command, program.name);
                 });
  return script + OfProgram(program, kEnd);
}

}  // namespace delink::tools
