// Scripts with which a shell completes the program's commands, its options and
// their values. They contain all they need: completing starts no program.
#pragma once

#include <string>

#include "tools/syntax/syntax.h"

namespace delink::tools {

std::string BashCompletion(const CommandSyntax& program);
std::string ZshCompletion(const CommandSyntax& program);
std::string FishCompletion(const CommandSyntax& program);

}  // namespace delink::tools
