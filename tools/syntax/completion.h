// Scripts that teach a shell to complete the program's commands, options and
// what their values name. They hold all they need: completing starts no
// program.
#pragma once

#include <string>

#include "tools/syntax/syntax.h"

namespace delink::tools {

std::string BashCompletion(const CommandSyntax& program);
std::string ZshCompletion(const CommandSyntax& program);
std::string FishCompletion(const CommandSyntax& program);

}  // namespace delink::tools
