#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/syntax/completion.h"
#include "tools/syntax/walk.h"

namespace delink::tools {
namespace {

constexpr char kFishHead[] =
    R"(# fish completion of $P, as `$P completion fish` prints it.
function __$P_at --argument-names at
  set --local command $P
  for word in (commandline -opc)[2..-1]
    switch "$command $word"
      case )";

constexpr char kFishMiddle[] = R"(
        set command "$command $word"
    end
  end
  test "$command" = "$at"
end

complete --command $P --no-files
complete --command $P --short-option h --long-option help --description '$H'
complete --command $P --long-option version --description '$V'
)";

std::string FishQuoted(const std::string& text) {
  return absl::StrCat(
      "'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string Values(const ArgumentSyntax& a) {
  if (!a.choices.empty()) {
    return " --no-files --arguments " +
           FishQuoted(absl::StrJoin(a.choices, " "));
  }
  switch (a.names) {
    case Names::kNothing:
      return " --no-files";
    case Names::kFolder:
      return " --no-files --arguments '(__fish_complete_directories)'";
    case Names::kFile:
    case Names::kPath:
      return " --force-files";
  }
  return "";
}

std::string Lines(const std::string& program, const std::string& full_name,
                  const CommandSyntax& command) {
  const std::string line =
      absl::StrCat("complete --command ", program, " --condition '__", program,
                   "_at \"", full_name, "\"'");
  std::string lines;
  for (const CommandSyntax& below : command.commands) {
    absl::StrAppend(&lines, line, " --arguments ", below.name,
                    " --description ", FishQuoted(below.summary), "\n");
  }
  for (const ArgumentSyntax& a : command.arguments) {
    const std::string values = a.flag() ? "" : Values(a);
    if (a.positional()) {
      absl::StrAppend(&lines, line, values, "\n");
      continue;
    }
    absl::StrAppend(
        &lines, line, " --long-option ", a.name.substr(2),
        a.flag() || a.value_optional() ? "" : " --require-parameter", values,
        " --description ", FishQuoted(a.help), "\n");
  }
  return lines;
}

}  // namespace

std::string FishCompletion(const CommandSyntax& program) {
  std::string script =
      absl::StrReplaceAll(kFishHead, {{"$P", program.name}}) +
      absl::StrJoin(CommandNames(program), " ",
                    [](std::string* out, const std::string& name) {
                      absl::StrAppend(out, "'", name, "'");
                    }) +
      absl::StrReplaceAll(
          kFishMiddle,
          {{"$P", program.name}, {"$H", kHelpHelp}, {"$V", kVersionHelp}});
  ForEachCommand(program,
                 [&](const std::string& name, const CommandSyntax& command) {
                   script += Lines(program.name, name, command);
                 });
  return script;
}

}  // namespace delink::tools
