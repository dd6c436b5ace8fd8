// The manual page, in roff's man macros: every command and option.
#pragma once

#include <string>

#include "tools/syntax/syntax.h"

namespace delink::tools {

std::string ManPage(const CommandSyntax& program, const std::string& version);

}  // namespace delink::tools
