#include <memory>

#include "tools/syntax/commands.h"

namespace delink::tools {

CommandSyntax CompletionSyntax() {
  auto completion = std::make_shared<CompletionCommand>();
  return {.name = "completion",
          .summary = "Print a script that completes commands in a shell",
          .examples = {"source <(delink completion bash)",
                       "delink completion fish > "
                       "~/.config/fish/completions/delink.fish"},
          .arguments = {{.name = "SHELL",
                         .to = &completion->shell,
                         .help = "bash, zsh or fish",
                         .choices = {"bash", "zsh", "fish"}}},
          .make = [completion] { return *completion; }};
}

CommandSyntax ManSyntax() {
  return {.name = "man",
          .summary = "Print the manual page",
          .examples = {"delink man | man -l -"},
          .make = [] { return ManCommand(); }};
}

}  // namespace delink::tools
