#include "tools/syntax/walk.h"

#include <vector>

namespace delink::tools {
namespace {

using Visit = std::function<void(const std::string&, const CommandSyntax&)>;

void Walk(const std::string& full_name, const CommandSyntax& command,
          const Visit& visit) {
  visit(full_name, command);
  for (const CommandSyntax& below : command.commands) {
    Walk(full_name + " " + below.name, below, visit);
  }
}

}  // namespace

void ForEachCommand(const CommandSyntax& program, const Visit& visit) {
  Walk(program.name, program, visit);
}

std::vector<std::string> CommandNames(const CommandSyntax& program) {
  std::vector<std::string> names;
  ForEachCommand(program, [&](const std::string& name, const CommandSyntax&) {
    if (name != program.name) names.push_back(name);
  });
  return names;
}

}  // namespace delink::tools
