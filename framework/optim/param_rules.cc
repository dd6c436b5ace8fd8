#include "framework/optim/param_rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "framework/base/check.h"

namespace delink {
namespace {

// How many names an error shows.
constexpr size_t kNamesShown = 3;

// The edit distance.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string NearNames(const ParamRegistry& registry,
                      const std::string& pattern) {
  std::vector<std::pair<size_t, std::string>> names;
  for (const ParamDecl& decl : registry.decls) {
    if (decl.link < 0) {
      names.emplace_back(Distance(pattern, decl.name), decl.name);
    }
  }
  std::sort(names.begin(), names.end());
  names.resize(std::min(names.size(), kNamesShown));
  return absl::StrJoin(names, ", ", [](std::string* out, const auto& name) {
    absl::StrAppend(out, name.second);
  });
}

bool Matches(const HyperGroup& group, const ParamDecl& decl) {
  if (!group.part.empty()) return decl.part == group.part;
  return fnmatch(group.match.c_str(), decl.name.c_str(), 0) == 0;
}

// The error for a group that is no parameter's first match.
absl::Status NoMatchError(const ParamRegistry& registry,
                          const std::vector<HyperGroup>& groups, size_t group) {
  const bool by_part = !groups[group].part.empty();
  const std::string& pattern =
      by_part ? groups[group].part : groups[group].match;
  const ParamDecl* own = nullptr;
  const ParamDecl* tied = nullptr;
  for (const ParamDecl& decl : registry.decls) {
    if (!Matches(groups[group], decl)) continue;
    const ParamDecl*& first = decl.link < 0 ? own : tied;
    if (first == nullptr) first = &decl;
  }
  if (own != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", pattern,
        "' matches only parameters that an earlier group matches (such as ",
        own->name, "), and the first matching group counts; move it up"));
  }
  if (tied != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", pattern, "' matches only ", tied->name, ", which is tied to ",
        registry.decl(tied->link).name, "; match that name"));
  }
  if (by_part) {
    return absl::InvalidArgumentError(
        absl::StrCat("no parameter is of the part '", pattern, "'"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", pattern, "' matches no parameter; similar names are ",
                   NearNames(registry, pattern)));
}

std::string Difference(const Hyper& a, const Hyper& b) {
  const std::pair<const char*, double Hyper::*> fields[] = {
      {"lr_scale", &Hyper::lr_scale},
      {"decay", &Hyper::decay},
      {"betas", &Hyper::beta1},
      {"betas", &Hyper::beta2},
      {"momentum", &Hyper::momentum}};
  for (const auto& [name, field] : fields) {
    if (a.*field != b.*field) {
      return absl::StrCat(name, " ", a.*field, " and ", b.*field);
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<ParamRules> ParamRules::Create(
    const ParamRegistry& registry, const Hyper& all,
    const std::vector<HyperGroup>& groups, size_t* wrong) {
  ParamRules rules(all);
  rules.groups_ = groups;
  std::vector<bool> used(groups.size(), false);
  for (const ParamDecl& decl : registry.decls) {
    int found = -1;
    for (size_t g = 0; g < groups.size() && found < 0; ++g) {
      if (Matches(groups[g], decl)) found = static_cast<int>(g);
    }
    rules.group_of_.push_back(found);
    if (found >= 0 && decl.link < 0) At(used, found) = true;
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (used[g]) continue;
    *wrong = g;
    return NoMatchError(registry, groups, g);
  }
  return rules;
}

Hyper ParamRules::HyperOf(const ParamRegistry& registry, int decl) const {
  Hyper hyper = all_;
  if (!registry.decl(decl).spec.decay) hyper.decay = 0;
  const int at = GroupOf(decl);
  if (at < 0) return hyper;
  const HyperGroup& group = At(groups_, at);
  hyper.lr_scale *= group.lr_scale.value_or(1);
  hyper.decay = group.decay.value_or(hyper.decay);
  hyper.beta1 = group.beta1.value_or(hyper.beta1);
  hyper.beta2 = group.beta2.value_or(hyper.beta2);
  hyper.momentum = group.momentum.value_or(hyper.momentum);
  return hyper;
}

absl::Status ParamRules::CheckSharing(const ParamRegistry& registry, int blocks,
                                      const SharingMap& sharing) const {
  if (groups_.empty()) return absl::OkStatus();
  std::map<std::pair<int, std::string>, int> decls;  // by layer, local name
  for (size_t i = 0; i < registry.decls.size(); ++i) {
    const ParamDecl& decl = registry.decls[i];
    decls[{decl.layer, decl.local}] = static_cast<int>(i);
  }
  for (size_t i = 0; i < registry.decls.size(); ++i) {
    const ParamDecl& decl = registry.decls[i];
    if (decl.link >= 0 || decl.layer < 1 || decl.layer > blocks) continue;
    if (!sharing.Visits(decl.layer - 1)) continue;
    const int leader = sharing.Leader(decl.part, decl.layer - 1) + 1;
    const auto at = decls.find({leader, decl.local});
    if (at == decls.end()) continue;
    const std::string difference = Difference(
        HyperOf(registry, at->second), HyperOf(registry, static_cast<int>(i)));
    if (difference.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(registry.decl(at->second).name, " and ", decl.name,
                     " share weights, but groups give them ", difference,
                     "; give layers that share weights the same values"));
  }
  return absl::OkStatus();
}

std::vector<UpdateRun> RunsOf(const ParamStore& store, int slab,
                              const ParamRules& rules) {
  const std::vector<SlabParam>& params = store.slab(slab).params;
  const Range held = store.held(slab, Plane::kState0);
  std::vector<UpdateRun> runs;
  for (const SlabParam& param : params) {
    const int64_t begin = std::max(held.begin, param.offset);
    const int64_t end = std::min(held.end, param.offset + param.elements);
    if (begin >= end) continue;
    const Hyper hyper = rules.HyperOf(store.registry(), param.decl);
    if (!runs.empty() && runs.back().hyper == hyper) {
      runs.back().end = end;
    } else {
      runs.push_back({.begin = begin, .end = end, .hyper = hyper});
    }
  }
  return runs;
}

}  // namespace delink
