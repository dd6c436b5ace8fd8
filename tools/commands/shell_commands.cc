// completion and man: the program's description for a shell.
#include "recipes/record/environment.h"
#include "tools/commands/commands.h"
#include "tools/syntax/commands.h"
#include "tools/syntax/completion.h"
#include "tools/syntax/man_page.h"

namespace delink::tools {
namespace {

std::string ScriptFor(const std::string& shell) {
  const CommandSyntax program = ProgramSyntax();
  if (shell == "zsh") return ZshCompletion(program);
  if (shell == "fish") return FishCompletion(program);
  return BashCompletion(program);
}

}  // namespace

int Run(const CompletionCommand& command, const ModelList&, World& world) {
  const absl::Status alone = RequireOneProcess(world, "completion");
  if (alone.ok()) Print(ScriptFor(command.shell));
  return Finish(world, alone);
}

int Run(const ManCommand&, const ModelList&, World& world) {
  const absl::Status alone = RequireOneProcess(world, "man");
  if (alone.ok()) {
    Print(ManPage(ProgramSyntax(), "delink " + DelinkVersion()));
  }
  return Finish(world, alone);
}

}  // namespace delink::tools
