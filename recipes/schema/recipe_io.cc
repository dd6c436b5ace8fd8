#include "recipes/schema/recipe_io.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/consistency.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/overrides.h"
#include "recipes/schema/reader.h"
#include "recipes/schema/toml.h"
#include "recipes/schema/writer.h"

namespace delink {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  constexpr std::streamsize kLargest = 1 << 20;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return absl::NotFoundError(
        absl::StrFormat("%s: there is no such recipe%s", path,
                        error && error != std::errc::no_such_file_or_directory
                            ? absl::StrFormat(" (%s)", error.message())
                            : ""));
  }
  if (fs::is_directory(status)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: is a folder; name the recipe file in it", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: cannot be read", path));
  }
  std::string text(kLargest + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() > kLargest) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: larger than 1 MiB, too large for a recipe", path));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

absl::StatusOr<Recipe> ParseRecipe(std::string_view text,
                                   std::string_view origin,
                                   const std::string& folder,
                                   const std::vector<std::string>& sets,
                                   const std::vector<ModelKind>& kinds) {
  DELINK_ASSIGN_OR_RETURN(schema::Table document,
                          schema::ParseToml(text, origin));
  auto positions = std::make_shared<Positions>(std::string(origin));
  schema::ReadContext context;
  context.positions = positions.get();
  context.folder = folder.empty() ? fs::current_path().string()
                                  : fs::absolute(folder).string();
  for (const std::string& set : sets) {
    schema::ApplySet(set, &document, &context.problems);
  }
  Recipe recipe;
  schema::Reader reader(document, "", &context);
  schema::DescribeModel(reader, &recipe.model, kinds);
  schema::DescribeRest(reader, recipe);
  reader.Finish();
  if (context.problems.size() == 0) schema::Complete(reader, recipe);
  DELINK_RETURN_IF_ERROR(context.problems.ToStatus());
  recipe.positions = std::move(positions);
  DELINK_RETURN_IF_ERROR(CheckBatch(recipe));
  return recipe;
}

absl::StatusOr<Recipe> ReadRecipe(const std::string& path,
                                  const std::vector<std::string>& sets,
                                  const std::vector<ModelKind>& kinds) {
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ParseRecipe(text, path, fs::path(path).parent_path().string(), sets,
                     kinds);
}

namespace {

std::vector<schema::Entry> Entries(const Recipe& recipe) {
  std::vector<schema::Entry> entries;
  schema::Writer writer(&entries);
  Recipe copy = recipe;
  schema::DescribeModel(writer, &copy.model, {});
  schema::DescribeRest(writer, copy);
  return entries;
}

}  // namespace

std::string ToToml(const Recipe& recipe) {
  return schema::ToToml(Entries(recipe));
}

std::vector<Difference> DiffRecipes(const Recipe& before, const Recipe& after) {
  std::vector<Difference> differences;
  std::map<std::string, schema::Entry> old;
  for (schema::Entry& entry : Entries(before)) {
    std::string key = entry.key();
    old.emplace(std::move(key), std::move(entry));
  }
  for (const schema::Entry& entry : Entries(after)) {
    const auto it = old.find(entry.key());
    if (it == old.end()) {
      differences.push_back({entry.key(), "", entry.text, entry.fixed});
      continue;
    }
    if (it->second.text != entry.text) {
      differences.push_back(
          {entry.key(), it->second.text, entry.text, entry.fixed});
    }
    old.erase(it);
  }
  for (const auto& [key, entry] : old) {
    differences.push_back({key, entry.text, "", entry.fixed});
  }
  return differences;
}

absl::Status CheckResume(const Recipe& saved, const Recipe& now) {
  std::string message;
  for (const Difference& d : DiffRecipes(saved, now)) {
    // Adding or removing a stage changes no fixed key: the finished stages are
    // checked against the checkpoint itself.
    const bool stage = d.key.starts_with("stage[");
    if (!d.fixed || (stage && (d.before.empty() || d.after.empty()))) continue;
    std::string place;
    if (now.positions != nullptr) {
      place = absl::StrCat(now.positions->Find(d.key).ToString(), ": ");
    }
    const auto shown = [](const std::string& text) {
      return text.empty() ? "not given" : text;
    };
    absl::StrAppend(&message, message.empty() ? "" : "\n", place, d.key,
                    ": is ", shown(d.after), ", but the run to resume has ",
                    shown(d.before),
                    "; it may not change: set it back, or start a new run");
  }
  return message.empty() ? absl::OkStatus()
                         : absl::InvalidArgumentError(message);
}

}  // namespace delink
