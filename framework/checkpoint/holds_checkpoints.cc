#include "framework/checkpoint/holds_checkpoints.h"

#include <algorithm>

#include "framework/base/file.h"
#include "framework/checkpoint/layout.h"

namespace delink {

bool HoldsCheckpoints(const std::string& path) {
  if (PathExists(JoinPath(path, checkpoint::kIndexName))) return true;
  const std::string inner = JoinPath(path, "checkpoints");
  const auto names = ListDirectory(IsDirectory(inner) ? inner : path);
  return names.ok() && std::ranges::any_of(*names, [](const std::string& name) {
           return checkpoint::StepOfName(name) >= 0;
         });
}

}  // namespace delink
