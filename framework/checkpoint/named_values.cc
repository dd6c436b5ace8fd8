#include "framework/checkpoint/named_values.h"

#include <cmath>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/layout.h"

namespace delink {
namespace {

constexpr const char* kKinds[] = {"an integer", "a real number", "text",
                                  "a list of numbers"};

// "/sources/0" and "samples".
std::pair<std::string, std::string> GroupAndName(const std::string& name) {
  const size_t slash = name.rfind('/');
  if (slash == std::string::npos) return {"/", name};
  return {absl::StrCat("/", name.substr(0, slash)), name.substr(slash + 1)};
}

bool IsEmpty(int64_t) { return false; }
bool IsEmpty(double value) { return std::isnan(value); }
template <typename Range>
bool IsEmpty(const Range& value) {
  return value.empty();
}

std::string WhereOf(const std::string& path, const KeptValue& kept) {
  const auto [group, name] = GroupAndName(kept.name);
  return absl::StrCat(JoinPath(path, checkpoint::kIndexName), ": ", group,
                      ": attribute '", name, "'");
}

absl::Status ReadGroup(const hdf5::File& file, const std::string& group,
                       NamedValues* values) {
  const std::string prefix = group == "/" ? "" : group.substr(1) + "/";
  DELINK_ASSIGN_OR_RETURN(const auto attributes, file.Attributes(group));
  for (const auto& attribute : attributes) {
    std::visit([&](const auto& v) { (*values)[prefix + attribute.first] = v; },
               attribute.second);
  }
  DELINK_ASSIGN_OR_RETURN(const std::vector<hdf5::Child> children,
                          file.List(group));
  for (const hdf5::Child& child : children) {
    const std::string name = prefix + child.name;
    const std::string path = "/" + name;
    if (path == checkpoint::kModelGroup ||
        path == checkpoint::kOptimizerGroup) {
      continue;
    }
    if (child.kind == hdf5::ChildKind::kGroup) {
      DELINK_RETURN_IF_ERROR(ReadGroup(file, path, values));
    } else if (child.kind == hdf5::ChildKind::kDataset) {
      DELINK_ASSIGN_OR_RETURN((*values)[name], file.ReadAll<double>(path));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void PutValues(const std::vector<KeptValue>& kept, NamedValues& values) {
  for (const KeptValue& one : kept) {
    std::visit(
        [&](const auto* value) {
          if (one.optional && IsEmpty(*value)) return;
          values[one.name] = *value;
        },
        one.value);
  }
}

absl::Status TakeValues(const std::string& path,
                        const std::vector<KeptValue>& kept,
                        NamedValues& values) {
  for (const KeptValue& one : kept) {
    const auto found = values.find(one.name);
    if (found == values.end()) {
      if (one.optional) continue;
      return absl::NotFoundError(absl::StrCat(
          WhereOf(path, one),
          ": missing; the file is of another kind or was written by another "
          "program"));
    }
    if (found->second.index() != one.value.index()) {
      return absl::InvalidArgumentError(absl::StrCat(
          WhereOf(path, one), ": is not ", kKinds[one.value.index()],
          "; the file was written by another program"));
    }
    std::visit(
        [&](auto* value) {
          using T = std::remove_pointer_t<decltype(value)>;
          *value = std::get<T>(std::move(found->second));
        },
        one.value);
    values.erase(found);
  }
  return absl::OkStatus();
}

absl::Status Impossible(const std::string& path, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(what),
                                                 "; another program wrote it"));
}

absl::Status CheckCount(const std::string& path, std::string_view name,
                        int64_t value, int64_t most) {
  if (0 <= value && value <= most) return absl::OkStatus();
  return Impossible(path, absl::StrCat("its ", std::string(name), " is ", value,
                                       ", not from 0 to ", most));
}

namespace checkpoint {

absl::Status WriteValues(const NamedValues& values, hdf5::File& file) {
  for (const auto& [path, value] : values) {
    if (const auto* list = std::get_if<std::vector<double>>(&value)) {
      DELINK_RETURN_IF_ERROR(file.WriteAll(
          "/" + path, {static_cast<int64_t>(list->size())}, list->data()));
      continue;
    }
    const auto [group, name] = GroupAndName(path);
    if (group != "/") DELINK_RETURN_IF_ERROR(file.CreateGroup(group));
    if (const auto* number = std::get_if<int64_t>(&value)) {
      DELINK_RETURN_IF_ERROR(file.SetInt(group, name, *number));
    } else if (const auto* real = std::get_if<double>(&value)) {
      DELINK_RETURN_IF_ERROR(file.SetDouble(group, name, *real));
    } else {
      DELINK_RETURN_IF_ERROR(
          file.SetText(group, name, std::get<std::string>(value)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<NamedValues> ReadValues(const hdf5::File& file) {
  NamedValues values;
  DELINK_RETURN_IF_ERROR(ReadGroup(file, "/", &values));
  return values;
}

}  // namespace checkpoint
}  // namespace delink
