#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/toml.h"
#include "tools/sweep/spec.h"

namespace delink::sweep {
namespace {

constexpr size_t kMostRuns = 10000;
constexpr size_t kLongestName = 100;

// A name for any file system, which a shell needs no quotes for.
std::string Tame(const std::string& text) {
  std::string tame;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("=+-._").find(c) != std::string::npos;
    tame += plain ? c : '-';
  }
  return tame;
}

std::string NameOf(const GridRun& run) {
  std::string name;
  for (const auto& [axis, label] : run.settings) {
    absl::StrAppend(&name, name.empty() ? "" : "_", axis, "=", label);
  }
  if (name.empty()) name = "run";
  const std::string tame = Tame(name);
  if (tame == name && name.size() <= kLongestName) return name;
  // Names that become equal when tamed or cut differ in their digests.
  return absl::StrCat(tame.substr(0, kLongestName), "_",
                      Sha256Hex(name).substr(0, 8));
}

bool Skipped(const GridRun& run, const std::vector<Skip>& skips) {
  const std::map<std::string, std::string> labels(run.settings.begin(),
                                                  run.settings.end());
  return std::any_of(skips.begin(), skips.end(), [&](const Skip& skip) {
    return std::all_of(skip.begin(), skip.end(), [&](const auto& where) {
      const auto& [axis, some] = where;
      return std::find(some.begin(), some.end(), labels.at(axis)) != some.end();
    });
  });
}

// A path from an axis, which is TOML.
std::string RecipePath(const Spec& spec, const std::string& toml) {
  const schema::Value value = schema::ParseSetValue(toml, {});
  const auto* text = value.As<std::string>();
  const std::string path = text != nullptr ? *text : toml;
  return path.starts_with('/') ? path : JoinPath(spec.folder, path);
}

void Choose(const Spec& spec, const Axis& axis, const Axis::Choice& choice,
            GridRun* run) {
  run->settings.emplace_back(axis.name, choice.label);
  for (size_t i = 0; i < axis.keys.size(); ++i) {
    if (axis.keys[i] == kRecipeKey) {
      run->recipe = RecipePath(spec, choice.values[i]);
    } else {
      run->sets.push_back(absl::StrCat(axis.keys[i], "=", choice.values[i]));
    }
  }
}

// An error if an axis sets the key too, since it would override `set`.
absl::Status CheckSet(const Spec& spec, const std::string& set) {
  std::string key = set.substr(0, set.find('='));
  std::erase(key, ' ');
  const auto varies = [&key](const std::string& other) {
    return key == other || key.starts_with(other + ".");
  };
  std::string by;
  for (const Axis& axis : spec.axes) {
    if (std::any_of(axis.keys.begin(), axis.keys.end(), varies)) {
      by = absl::StrCat("the axis '", axis.name, "' varies as well");
    }
  }
  if (!spec.seeds.empty() && varies("run.seed")) by = "`seeds` sets as well";
  if (by.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(spec.path, ": --set ", set,
                                                 ": sets a key that ", by,
                                                 "; remove one of the two"));
}

// Checks that names differ, since each is a folder.
absl::Status CheckNames(const Spec& spec, const std::vector<GridRun>& runs) {
  std::set<std::string> names;
  for (const GridRun& run : runs) {
    if (names.insert(run.name).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(spec.path, ": two runs would be called ", run.name,
                     "; give an axis another `name` or other `labels`"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GridRun>> ExpandGrid(const Spec& spec) {
  for (const std::string& set : spec.sets) {
    DELINK_RETURN_IF_ERROR(CheckSet(spec, set));
  }
  std::vector<GridRun> grid = {{.recipe = spec.recipe, .sets = spec.sets}};
  for (const Axis& axis : spec.axes) {
    std::vector<GridRun> wider;
    for (const GridRun& run : grid) {
      for (const Axis::Choice& choice : axis.choices) {
        Choose(spec, axis, choice, &wider.emplace_back(run));
      }
    }
    grid = std::move(wider);
    if (grid.size() > kMostRuns) {
      return absl::InvalidArgumentError(
          absl::StrCat(spec.path, ": more than ", kMostRuns,
                       " combinations; split it into several sweeps"));
    }
  }
  std::erase_if(grid,
                [&](const GridRun& run) { return Skipped(run, spec.skips); });
  if (grid.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        spec.path, ": [[skip]] leaves no run; skip fewer combinations"));
  }
  std::vector<GridRun> runs;
  const size_t rounds = std::max<size_t>(1, spec.seeds.size());
  for (size_t round = 0; round < rounds; ++round) {
    for (GridRun run : grid) {
      if (!spec.seeds.empty()) {
        const std::string seed = absl::StrCat(spec.seeds[round]);
        run.sets.push_back("run.seed=" + seed);
        run.settings.emplace_back("seed", seed);
      }
      run.name = NameOf(run);
      runs.push_back(std::move(run));
    }
  }
  DELINK_RETURN_IF_ERROR(CheckNames(spec, runs));
  return runs;
}

}  // namespace delink::sweep
