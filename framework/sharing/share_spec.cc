#include "framework/sharing/share_spec.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

absl::StatusOr<int64_t> ParseSets(std::string_view text,
                                  std::string_view digits) {
  int64_t n = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, n);
  if (error != std::errc() || stop != end || n < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' is no way to share: after the colon comes a number of sets, 1 or "
        "more",
        text));
  }
  return n;
}

}  // namespace

SharePolicy ShareSpec::For(std::string_view part) const {
  if (every.has_value()) return *every;
  const auto it = parts.find(std::string(part));
  return it == parts.end() ? SharePolicy{} : it->second;
}

absl::StatusOr<SharePolicy> ParseSharePolicy(std::string_view text) {
  using Kind = SharePolicy::Kind;
  const std::string_view word = Trim(text);
  if (word == "none") return SharePolicy{Kind::kNone, 0};
  if (word == "all") return SharePolicy{Kind::kAll, 0};
  for (const auto& [prefix, kind] :
       {std::pair<std::string_view, Kind>{"groups:", Kind::kGroups},
        std::pair<std::string_view, Kind>{"cycle:", Kind::kCycle}}) {
    if (!word.starts_with(prefix)) continue;
    DELINK_ASSIGN_OR_RETURN(const int64_t n,
                            ParseSets(word, word.substr(prefix.size())));
    return SharePolicy{kind, n};
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "'%s' is no way to share: use all, groups:N, cycle:N or none", text));
}

absl::StatusOr<ShareSpec> ParseShareSpec(std::string_view text) {
  ShareSpec spec;
  if (text.find('=') == std::string_view::npos) {
    DELINK_ASSIGN_OR_RETURN(spec.every, ParseSharePolicy(text));
    return spec;
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const size_t equals = item.find('=');
    const std::string part(Trim(item.substr(0, equals)));
    if (equals == std::string_view::npos || part.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "'%s' in '%s' is not part=policy, as in attention=all,mlp=groups:4",
          item, text));
    }
    DELINK_ASSIGN_OR_RETURN(const SharePolicy policy,
                            ParseSharePolicy(item.substr(equals + 1)));
    if (!spec.parts.emplace(part, policy).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("'%s' names %s twice", text, part));
    }
    begin = end + 1;
  }
  return spec;
}

std::string ToString(const SharePolicy& policy) {
  switch (policy.kind) {
    case SharePolicy::Kind::kNone:
      return "none";
    case SharePolicy::Kind::kAll:
      return "all";
    case SharePolicy::Kind::kGroups:
      return absl::StrCat("groups:", policy.n);
    case SharePolicy::Kind::kCycle:
      return absl::StrCat("cycle:", policy.n);
  }
  DELINK_CHECK(false) << "no such policy";
  return "";
}

std::string ToString(const ShareSpec& spec) {
  if (spec.every.has_value()) return ToString(*spec.every);
  if (spec.parts.empty()) return "none";
  std::string text;
  for (const auto& [part, policy] : spec.parts) {
    absl::StrAppend(&text, text.empty() ? "" : ",", part, "=",
                    ToString(policy));
  }
  return text;
}

absl::Status CheckSharePolicy(const SharePolicy& policy, int64_t layers) {
  const bool groups = policy.kind == SharePolicy::Kind::kGroups;
  if (!groups && policy.kind != SharePolicy::Kind::kCycle) {
    return absl::OkStatus();
  }
  if (policy.n < 1 || policy.n > layers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s does not fit %d layers: use 1 to %d sets",
                        ToString(policy), layers, layers));
  }
  if (groups && layers % policy.n != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s does not divide %d layers", ToString(policy), layers));
  }
  return absl::OkStatus();
}

int64_t ShareSetOf(const SharePolicy& policy, int64_t layers, int64_t layer) {
  DELINK_CHECK(layer >= 0 && layer < layers)
      << "layer " << layer << " of " << layers;
  switch (policy.kind) {
    case SharePolicy::Kind::kNone:
      return layer;
    case SharePolicy::Kind::kAll:
      return 0;
    case SharePolicy::Kind::kGroups:
      DELINK_CHECK(policy.n >= 1 && layers % policy.n == 0);
      return layer / (layers / policy.n);
    case SharePolicy::Kind::kCycle:
      DELINK_CHECK(policy.n >= 1);
      return layer % policy.n;
  }
  DELINK_CHECK(false) << "no such policy";
  return 0;
}

int64_t ShareSets(const SharePolicy& policy, int64_t layers) {
  switch (policy.kind) {
    case SharePolicy::Kind::kNone:
      return layers;
    case SharePolicy::Kind::kAll:
      return 1;
    case SharePolicy::Kind::kGroups:
    case SharePolicy::Kind::kCycle:
      return policy.n;
  }
  DELINK_CHECK(false) << "no such policy";
  return 0;
}

bool Refines(const SharePolicy& fine, const SharePolicy& coarse,
             int64_t layers) {
  // The first layer of each fine set tells the coarse set of all of it.
  std::map<int64_t, int64_t> coarse_of;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const int64_t set = ShareSetOf(coarse, layers, layer);
    const auto [it, first] =
        coarse_of.emplace(ShareSetOf(fine, layers, layer), set);
    if (!first && it->second != set) return false;
  }
  return true;
}

}  // namespace delink
