// Walks the tree of commands.
#pragma once

#include <functional>
#include <string>

#include "tools/syntax/syntax.h"

namespace delink::tools {

// Every command with its full name ("delink data build"), outermost first.
void ForEachCommand(
    const CommandSyntax& program,
    const std::function<void(const std::string& full_name,
                             const CommandSyntax& command)>& visit);

// The full names of all commands below the program.
std::vector<std::string> CommandNames(const CommandSyntax& program);

}  // namespace delink::tools
