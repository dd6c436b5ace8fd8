#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tools/syntax/completion.h"
#include "tools/syntax/walk.h"

namespace delink::tools {
namespace {

// Text of a specification of _arguments, in single quotes.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", R"('\'')"},
                                    {"\\", "\\\\"},
                                    {":", "\\:"},
                                    {"[", "\\["},
                                    {"]", "\\]"}});
}

std::string FunctionOf(const std::string& full_name) {
  return absl::StrCat("_", absl::StrReplaceAll(full_name, {{" ", "_"}}));
}

std::string Action(const ArgumentSyntax& a) {
  if (!a.choices.empty()) {
    return absl::StrCat("(", absl::StrJoin(a.choices, " "), ")");
  }
  switch (a.names) {
    case Names::kNothing:
      return " ";
    case Names::kFolder:
      return "_files -/";
    case Names::kFile:
    case Names::kPath:
      return "_files";
  }
  return " ";
}

std::string Specification(const ArgumentSyntax& a) {
  if (a.positional()) {
    return absl::StrCat("'", a.repeats() ? "*" : "", ":", ZshText(a.name), ":",
                        Action(a), "'");
  }
  std::string spec = "'";
  if (!a.excludes.empty()) {
    absl::StrAppend(&spec, "(", absl::StrJoin(a.excludes, " "), ")");
  }
  absl::StrAppend(&spec, a.repeats() ? "*" : "", a.name,
                  a.flag()             ? ""
                  : a.value_optional() ? "=-"
                                       : "=",
                  "[", ZshText(a.help), "]");
  if (!a.flag()) {
    absl::StrAppend(&spec, a.value_optional() ? "::" : ":", ZshText(a.value),
                    ":", Action(a));
  }
  return spec + "'";
}

// The call of _arguments, up to what follows the common options.
std::string Arguments(const char* flags) {
  return absl::StrCat("  _arguments ", flags, " \\\n    '(- *)'{", kHelpFlags,
                      "}'[", ZshText(kHelpHelp), "]' \\\n    '(- *)",
                      kVersionFlag, "[", ZshText(kVersionHelp), "]'");
}

std::string Group(const std::string& full_name, const CommandSyntax& command) {
  std::string body = absl::StrCat(
      "  local curcontext=\"$curcontext\" state line\n", Arguments("-C"),
      " \\\n    ': :->command' '*:: :->arguments'\n"
      "  case $state in\n  command)\n    local -a commands=(\n");
  for (const CommandSyntax& below : command.commands) {
    absl::StrAppend(&body, "      '", below.name, ":", ZshText(below.summary),
                    "'\n");
  }
  absl::StrAppend(&body,
                  "    )\n    _describe -t commands command commands\n    ;;\n"
                  "  arguments)\n    case $words[1] in\n");
  for (const CommandSyntax& below : command.commands) {
    absl::StrAppend(&body, "    ", below.name, ") ",
                    FunctionOf(full_name + " " + below.name), " ;;\n");
  }
  return body + "    esac\n    ;;\n  esac\n";
}

std::string Leaf(const CommandSyntax& command) {
  std::string body = Arguments("-S");
  for (const ArgumentSyntax& a : command.arguments) {
    absl::StrAppend(&body, " \\\n    ", Specification(a));
  }
  return body + "\n";
}

}  // namespace

std::string ZshCompletion(const CommandSyntax& program) {
  std::string script = absl::StrCat(
      "#compdef ", program.name, "\n# zsh completion of ", program.name,
      ", as `", program.name, " completion zsh` prints it.\n");
  ForEachCommand(
      program, [&](const std::string& name, const CommandSyntax& command) {
        absl::StrAppend(
            &script, FunctionOf(name), "() {\n",
            command.commands.empty() ? Leaf(command) : Group(name, command),
            "}\n\n");
      });
  // If zsh finds the file in fpath, it is the function; else it is sourced.
  const std::string own = FunctionOf(program.name);
  return absl::StrCat(script, "if [[ $funcstack[1] == ", own, " ]]; then\n  ",
                      own, " \"$@\"\nelse\n  compdef ", own, " ", program.name,
                      "\nfi\n");
}

}  // namespace delink::tools
