// Recipes from and to TOML.
//
// Reading is strict and reports all problems at once: a line for each, with
// file:line:column and, for an unknown key, the nearest known one:
//
//   gpt.toml:7:1: model.head: unknown key; did you mean 'heads'?
//
// A missing file is NotFound; all other errors are InvalidArgument.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "recipes/schema/model_config.h"
#include "recipes/schema/recipe.h"

namespace delink {

// The recipe in `path`, changed by `sets` ("optimizer.lr=3e-4", in order).
// Everything is resolved except what needs the corpus (model.vocab) or the
// number of ranks (CheckWorld). Paths in it are relative to its folder.
absl::StatusOr<Recipe> ReadRecipe(const std::string& path,
                                  const std::vector<std::string>& sets,
                                  const std::vector<ModelKind>& kinds);

// The same from text; `origin` names it in messages.
absl::StatusOr<Recipe> ParseRecipe(std::string_view text,
                                   std::string_view origin,
                                   const std::string& folder,
                                   const std::vector<std::string>& sets,
                                   const std::vector<ModelKind>& kinds);

// The whole resolved recipe, which reads back equal (DiffRecipes finds
// nothing).
std::string ToToml(const Recipe& recipe);

struct Difference {
  std::string key;     // "optimizer.lr"
  std::string before;  // TOML; empty if the key is absent
  std::string after;
  bool fixed = false;  // it may not change when a run resumes
};

std::vector<Difference> DiffRecipes(const Recipe& before, const Recipe& after);

// Whether a run saved with `saved` may resume with `now`. An error lists every
// fixed key that differs. Resolve model.vocab in both first.
absl::Status CheckResume(const Recipe& saved, const Recipe& now);

}  // namespace delink
