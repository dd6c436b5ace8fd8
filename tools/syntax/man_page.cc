#include "tools/syntax/man_page.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/syntax/walk.h"

namespace delink::tools {
namespace {

// Escapes plain text, so that no character of it is a roff command.
std::string ManText(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(
      text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"\n.", "\n\\&."}});
  if (escaped.starts_with('.')) escaped = "\\&" + escaped;
  return escaped;
}

std::string Bold(const std::string& text) {
  return absl::StrCat("\\fB", ManText(text), "\\fR");
}

std::string Italic(const std::string& text) {
  return absl::StrCat("\\fI", ManText(text), "\\fR");
}

// An option with its value, or a positional argument.
std::string Form(const ArgumentSyntax& a) {
  if (a.positional()) return Italic(a.name) + (a.repeats() ? "..." : "");
  if (a.flag()) return Bold(a.name);
  if (a.value_optional()) {
    return absl::StrCat(Bold(a.name), "[=", Italic(a.value), "]");
  }
  return absl::StrCat(Bold(a.name), " ", Italic(a.value));
}

std::string Synopsis(const std::string& full_name,
                     const CommandSyntax& command) {
  std::string line = Bold(full_name);
  for (const ArgumentSyntax& a : command.arguments) {
    const bool must = a.positional() || a.required;
    absl::StrAppend(&line, " ", must ? "" : "[", Form(a), must ? "" : "]",
                    a.repeats() && !a.positional() ? "..." : "");
  }
  return line + "\n";
}

std::string Entry(const std::string& what, const std::string& text) {
  return absl::StrCat(".TP\n", what, "\n", text, "\n");
}

std::string Examples(const CommandSyntax& command) {
  return absl::StrCat(
      ".PP\nExample:\n.PP\n.RS 4\n.nf\n",
      absl::StrJoin(command.examples, "\n",
                    [](std::string* out, const std::string& example) {
                      absl::StrAppend(out, ManText(example));
                    }),
      "\n.fi\n.RE\n");
}

std::string Section(const std::string& full_name,
                    const CommandSyntax& command) {
  std::string section =
      absl::StrCat(".SS ", full_name, "\n", ManText(command.summary),
                   ".\n.PP\n", Synopsis(full_name, command));
  for (const ArgumentSyntax& a : command.arguments) {
    std::string text = ManText(a.help);
    if (!a.choices.empty()) {
      absl::StrAppend(&text, "; one of ",
                      ManText(absl::StrJoin(a.choices, ", ")));
    }
    section += Entry(Form(a), text);
  }
  return section + Examples(command);
}

}  // namespace

std::string ManPage(const CommandSyntax& program, const std::string& version) {
  std::string page = absl::StrCat(
      ".TH ", absl::AsciiStrToUpper(program.name), " 1 \"\" \"", version,
      "\" \"User Commands\"\n.SH NAME\n", program.name,
      " \\- pretrain transformers by Pseudo\\-to\\-Real\n.SH SYNOPSIS\n",
      Bold(program.name), " ", Italic("COMMAND"), " [", Italic("ARGUMENT"),
      "]...\n.SH DESCRIPTION\n", ManText(program.summary), "\n");
  absl::StrAppend(&page, ".PP\nEvery command understands:\n",
                  Entry(Bold("-h") + ", " + Bold("--help"), ManText(kHelpHelp)),
                  Entry(Bold(kVersionFlag), ManText(kVersionHelp)),
                  Examples(program), ".SH COMMANDS\n");
  ForEachCommand(program,
                 [&](const std::string& name, const CommandSyntax& command) {
                   if (command.commands.empty()) page += Section(name, command);
                 });
  return absl::StrCat(page, ".SH NOTES\n", ManText(program.notes), "\n");
}

}  // namespace delink::tools
