#include "recipes/run/setup/check_kinds.h"

#include <tuple>

#include "absl/strings/str_cat.h"

namespace delink {

absl::Status CheckKinds(const std::string& path, const CheckpointHeader& header,
                        const Recipe& recipe) {
  const std::tuple<const char*, std::string, std::string> kinds[] = {
      {"model", header.model, std::string(recipe.model->kind())},
      {"optimizer", header.optimizer, recipe.optimizer.kind_name()}};
  for (const auto& [what, is, says] : kinds) {
    if (is == says) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its ", what, " is '", is, "', but its recipe's '",
                     says, "'; another program wrote it"));
  }
  return absl::OkStatus();
}

}  // namespace delink
