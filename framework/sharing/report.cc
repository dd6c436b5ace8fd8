#include "framework/sharing/report.h"

#include <array>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/sharing/resolve.h"

namespace delink {
namespace {

template <size_t N>
std::string Scaled(double value, double base,
                   const std::array<const char*, N>& units) {
  size_t unit = 0;
  while (value >= base && unit + 1 < N) {
    value /= base;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f%s", value, units[0]);
  return absl::StrFormat("%.1f%s", value, units[unit]);
}

std::string Count(int64_t n) {
  constexpr std::array<const char*, 5> kUnits = {"", " k", " M", " G", " T"};
  return Scaled(static_cast<double>(n), 1000, kUnits);
}

std::string Bytes(int64_t n) {
  constexpr std::array<const char*, 5> kUnits = {" B", " KiB", " MiB", " GiB",
                                                 " TiB"};
  return Scaled(static_cast<double>(n), 1024, kUnits);
}

}  // namespace

SharingReport ReportSharing(const ParamStore& store, int64_t activation_bytes) {
  return {.unique_parameters = store.unique_parameters(),
          .virtual_parameters = store.virtual_parameters(),
          .weight_bytes = store.bytes(Plane::kWeight),
          .gradient_bytes = store.bytes(Plane::kGradient),
          .state_bytes = store.state_bytes(),
          .activation_bytes = activation_bytes};
}

std::vector<std::string> Describe(const SharingReport& r) {
  const double share = r.virtual_parameters == 0
                           ? 100.0
                           : 100.0 * static_cast<double>(r.unique_parameters) /
                                 static_cast<double>(r.virtual_parameters);
  return {absl::StrFormat("parameters: %s virtual, %s unique (%.1f %%)",
                          Count(r.virtual_parameters),
                          Count(r.unique_parameters), share),
          absl::StrCat("memory: ", Bytes(r.weight_bytes), " weights + ",
                       Bytes(r.gradient_bytes), " gradients + ",
                       Bytes(r.state_bytes), " optimizer state + ",
                       Bytes(r.activation_bytes),
                       " activations = ", Bytes(r.total_bytes()))};
}

std::vector<std::string> DescribeSharing(const ParamStore& store) {
  std::vector<std::string> lines;
  const int blocks = store.blocks();
  for (const std::string& part : PartsOf(store.registry(), blocks)) {
    std::set<int> users, leaders;
    for (const ParamDecl& decl : store.registry().decls) {
      const bool block = decl.layer >= 1 && decl.layer <= blocks;
      if (!block || decl.part != part || decl.link >= 0) continue;
      if (!store.sharing().Visits(decl.layer - 1)) continue;
      users.insert(decl.layer);
      leaders.insert(LeaderLayer(store.sharing(), part, decl.layer, blocks));
    }
    if (users.empty()) continue;
    lines.push_back(absl::StrFormat(
        "%s: %d block%s use%s %d slab%s", part, users.size(),
        users.size() == 1 ? "" : "s", users.size() == 1 ? "s" : "",
        leaders.size(), leaders.size() == 1 ? "" : "s"));
  }
  return lines;
}

}  // namespace delink
