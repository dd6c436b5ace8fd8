#include "framework/safetensors/folder.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/file.h"
#include "framework/base/printable.h"
#include "framework/base/status_macros.h"
#include "framework/base/strict_json.h"

namespace delink::safetensors {
namespace {

using nlohmann::json;

constexpr int64_t kLongestIndex = 100'000'000;

// Where each tensor is, by its name.
using WeightMap = std::map<std::string, std::string>;

absl::Status BadIndex(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(
      Printable(absl::StrCat(path, ": ", std::string(what),
                             "; fetch the folder again, or save the model "
                             "again with save_pretrained")));
}

// A name of a file in the folder itself.
bool IsBareName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

absl::StatusOr<WeightMap> ReadIndex(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
  if (bytes > kLongestIndex) {
    return BadIndex(
        path, absl::StrCat("is ", bytes, " bytes long, more than 100 MB"));
  }
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const absl::StatusOr<json> index = ParseStrictJson(text);
  if (!index.ok()) {
    return BadIndex(path,
                    absl::StrCat("is no JSON: ", index.status().message()));
  }
  if (!index->is_object() || !index->contains("weight_map") ||
      !(*index)["weight_map"].is_object()) {
    return BadIndex(path, "has no weight_map");
  }
  // Total sizes are not read: published indexes count tied weights once or
  // twice.
  WeightMap files;
  for (const auto& [name, file] : (*index)["weight_map"].items()) {
    if (!file.is_string() || !IsBareName(file.get_ref<const std::string&>())) {
      return BadIndex(path, absl::StrCat("gives for '", name,
                                         "' something that is not the name of "
                                         "a file in the same folder"));
    }
    files[name] = file.get<std::string>();
  }
  return files;
}

// Names, not more than a person reads.
std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kMostNames = 50;
  if (names.size() <= kMostNames) return absl::StrJoin(names, ", ");
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + kMostNames, ", "), " and ",
      names.size() - kMostNames, " more");
}

absl::Status NoWeights(const std::string& dir) {
  for (const char* old :
       {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!PathExists(JoinPath(dir, old))) continue;
    return absl::NotFoundError(absl::StrCat(
        dir, ": has ", old, " but no ", kSingleName,
        "; only safetensors are read: load the model with transformers and "
        "save it again with save_pretrained"));
  }
  return absl::NotFoundError(
      absl::StrCat(dir, ": has neither ", kSingleName, " nor ", kIndexName,
                   "; give a folder of a model written by save_pretrained or "
                   "downloaded from Hugging Face"));
}

}  // namespace

absl::StatusOr<Folder> Folder::Open(const std::string& dir) {
  Folder folder(dir);
  const std::string single = JoinPath(dir, kSingleName);
  if (PathExists(single)) {
    DELINK_ASSIGN_OR_RETURN(File file, File::Open(single));
    folder.files_.push_back(std::move(file));
    const File& opened = folder.files_.back();
    for (const Entry& entry : opened.entries()) {
      folder.tensors_[entry.name] = {.file = &opened, .entry = &entry};
    }
    return folder;
  }
  if (!PathExists(JoinPath(dir, kIndexName))) return NoWeights(dir);
  DELINK_RETURN_IF_ERROR(folder.OpenShards());
  return folder;
}

absl::Status Folder::OpenShards() {
  const std::string index = JoinPath(path_, kIndexName);
  DELINK_ASSIGN_OR_RETURN(const WeightMap wanted, ReadIndex(index));
  std::set<std::string> names;
  for (const auto& [tensor, name] : wanted) names.insert(name);
  std::vector<std::string> absent, extra;
  for (const std::string& name : names) {
    if (!PathExists(JoinPath(path_, name))) absent.push_back(name);
  }
  if (!absent.empty()) {
    return absl::NotFoundError(
        Printable(absl::StrCat(path_, ": lacks ", Listed(absent), ", which ",
                               kIndexName, " names; fetch the missing files")));
  }
  for (const std::string& name : names) {
    DELINK_ASSIGN_OR_RETURN(File opened, File::Open(JoinPath(path_, name)));
    files_.push_back(std::move(opened));
    for (const Entry& entry : files_.back().entries()) {
      const auto it = wanted.find(entry.name);
      if (it != wanted.end() && it->second == name) {
        tensors_[entry.name] = {.file = &files_.back(), .entry = &entry};
      } else {
        extra.push_back(absl::StrCat(entry.name, " (", name, ")"));
      }
    }
  }
  for (const auto& [tensor, name] : wanted) {
    if (tensors_.find(tensor) == tensors_.end()) {
      absent.push_back(absl::StrCat(tensor, " (", name, ")"));
    }
  }
  if (absent.empty() && extra.empty()) return absl::OkStatus();
  std::string what = "does not match its shards:";
  if (!absent.empty())
    absl::StrAppend(&what, " missing in the shards: ", Listed(absent));
  if (!absent.empty() && !extra.empty()) absl::StrAppend(&what, ";");
  if (!extra.empty()) {
    absl::StrAppend(&what,
                    " in the shards, but not in the index: ", Listed(extra));
  }
  return BadIndex(index, what);
}

const Folder::Tensor* Folder::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace delink::safetensors
