#include "tools/report/run_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "parallel/watch/heartbeat.h"
#include "recipes/record/run_folder.h"
#include "recipes/schema/toml.h"
#include "tools/report/metrics_reader.h"

namespace delink::report {
namespace {

namespace fs = std::filesystem;

// Adds the leaves below `value`, with their full keys. Accepts any valid TOML,
// since a recipe may have keys of a user's own model.
void Flatten(const schema::Value& value, const std::string& key,
             std::vector<std::pair<std::string, std::string>>* leaves) {
  if (const auto* table = value.As<schema::Table>()) {
    for (const schema::Member& member : *table) {
      const std::string dot = key.empty() ? "" : ".";
      Flatten(member.value, key + dot + member.key, leaves);
    }
    return;
  }
  const auto* list = value.As<schema::List>();
  if (list != nullptr && !list->empty() &&
      list->front().As<schema::Table>() != nullptr) {
    for (size_t i = 0; i < list->size(); ++i) {
      Flatten((*list)[i], absl::StrCat(key, "[", i, "]"), leaves);
    }
    return;
  }
  leaves->emplace_back(key, schema::ToToml(value));
}

void ReadRecipeKeys(RunRecord* run) {
  const std::string path = RunFolder::Recipe(run->folder);
  if (!PathExists(path)) {
    run->notes.emplace_back("there is no recipe.toml");
    return;
  }
  const absl::StatusOr<std::string> text = ReadFile(path);
  absl::StatusOr<schema::Table> document =
      text.ok() ? schema::ParseToml(*text, "recipe.toml") : text.status();
  if (!document.ok()) {
    run->notes.push_back(
        absl::StrCat("the recipe cannot be read: ",
                     absl::string_view(document.status().message())));
    return;
  }
  Flatten(schema::Value(*std::move(document)), "", &run->recipe);
  for (const auto& [key, value] : run->recipe) {
    if (key != "schedule.steps") continue;
    if (!absl::SimpleAtod(value, &run->planned_steps)) {
      run->planned_steps = kUnknown;
    }
  }
}

void ReadMetrics(RunRecord* run) {
  const std::string path = RunFolder::Metrics(run->folder);
  if (!PathExists(path)) {
    run->notes.emplace_back("there is no metrics.jsonl, so nothing to plot");
    return;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    run->notes.emplace_back("metrics.jsonl cannot be read");
    return;
  }
  MetricsReader reader(run);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.empty()) reader.AddLine(line, /*whole=*/!in.eof());
  }
  reader.Finish();
  if (run->steps.rows() == 0) {
    run->notes.emplace_back("metrics.jsonl tells of no step");
  }
}

// Sets how the run ended, and adds a note if it did not end properly.
void FindState(RunRecord* run) {
  const std::vector<double>& steps = run->steps.Values("step");
  const double last = steps.empty() ? 0 : steps.back();
  const std::string ranks = RunFolder::Ranks(run->folder);
  const std::string got =
      std::isnan(run->planned_steps)
          ? absl::StrFormat("step %.0f", last)
          : absl::StrFormat("step %.0f of %.0f", last, run->planned_steps);
  if (!CheckNobodyLives(ranks).ok()) {
    run->state = RunState::kRunning;
    run->notes.push_back(absl::StrCat("is still running; shown up to ", got));
  } else if (PathExists(ranks)) {
    run->state = RunState::kDied;
    run->notes.push_back(
        absl::StrCat("died after ", got,
                     ", or its machine did; --resume continues from its newest "
                     "checkpoint"));
  } else if (steps.empty()) {
    run->state = RunState::kEmpty;
  } else if (last >= run->planned_steps) {
    run->state = RunState::kFinished;
  } else if (!run->ended_early.empty()) {
    run->state = RunState::kFinished;
    run->notes.push_back(
        absl::StrCat("ended early, after ", got, ": ", run->ended_early));
  } else {
    run->state = RunState::kStopped;
    run->notes.push_back(absl::StrCat("ended after ", got));
  }
  if (PathExists(RunFolder::Diagnosis(run->folder))) {
    run->notes.emplace_back(
        "had steps with non-finite values, or outliers: see diagnosis/ in its "
        "folder");
  }
}

// The last `depth` parts of a path: "b/c" of "/a/b/c" for 2.
std::string Tail(const fs::path& path, size_t depth) {
  std::vector<std::string> parts;
  for (const fs::path& part : path.relative_path()) {
    if (!part.empty()) parts.push_back(part.string());
  }
  std::string tail;
  for (size_t i = parts.size() - std::min(depth, parts.size());
       i < parts.size(); ++i) {
    absl::StrAppend(&tail, tail.empty() ? "" : "/", parts[i]);
  }
  return tail.empty() ? path.string() : tail;
}

fs::path Whole(const std::string& folder) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(folder, error);
  return error ? fs::path(folder) : whole;
}

}  // namespace

void RoutingRecord::AddMap(LoadMap map, size_t budget) {
  size_t numbers = 0;
  for (const std::vector<double>& load : map.load) numbers += load.size();
  // The one before was perhaps kept as the last only.
  if (rows_with_maps > 0 && (rows_with_maps - 1) % stride != 0) maps.pop_back();
  maps.push_back(std::move(map));
  ++rows_with_maps;
  numbers = std::max<size_t>(1, numbers);
  if (maps.size() <= std::max<size_t>(4, budget / numbers)) return;
  std::vector<LoadMap> fewer;
  for (size_t i = 0; i < maps.size(); ++i) {
    if (i % 2 == 0 || i + 1 == maps.size()) fewer.push_back(std::move(maps[i]));
  }
  maps = std::move(fewer);
  stride *= 2;
}

absl::StatusOr<RunRecord> ReadRun(const std::string& folder) {
  RunRecord run;
  run.folder = folder;
  if (!RunFolder::HoldsRun(folder)) {
    DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            ListDirectory(folder));
    if (!names.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          folder,
          ": is not a run: it has neither recipe.toml nor metrics.jsonl nor "
          "checkpoints/; name the --out of a delink train"));
    }
    run.notes.emplace_back("the folder is empty");
    return run;
  }
  ReadRecipeKeys(&run);
  ReadMetrics(&run);
  FindState(&run);
  return run;
}

void NameRuns(std::vector<RunRecord>* runs) {
  // Paths differ (see MakeReport), else no depth would tell them apart.
  std::vector<size_t> depths(runs->size(), 1);
  for (bool same = true; same;) {
    same = false;
    std::map<std::string, std::vector<size_t>> by_name;
    for (size_t i = 0; i < runs->size(); ++i) {
      (*runs)[i].name = Tail(Whole((*runs)[i].folder), depths[i]);
      by_name[(*runs)[i].name].push_back(i);
    }
    for (const auto& [name, users] : by_name) {
      if (users.size() < 2) continue;
      for (const size_t i : users) {
        const std::string longer =
            Tail(Whole((*runs)[i].folder), depths[i] + 1);
        if (longer == (*runs)[i].name) continue;
        ++depths[i];
        same = true;
      }
    }
  }
}

}  // namespace delink::report
