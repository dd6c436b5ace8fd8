#include "offload/plan/place.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "framework/base/at.h"

namespace delink {
namespace {

bool Matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool Matches(const std::string& pattern, const Layout& layout,
             const Slab& slab) {
  return std::any_of(
      slab.params.begin(), slab.params.end(), [&](const SlabParam& param) {
        return Matches(pattern, layout.registry().decl(param.decl).name);
      });
}

// Of blocks those that stay: the k-th element of all stays where the share of
// what went before it is used up.
class Spread {
 public:
  explicit Spread(double resident) : resident_(resident) {}
  bool Stays(int64_t elements) {
    const double wanted = resident_ * static_cast<double>(all_ + elements);
    all_ += elements;
    // Half of it or more.
    const bool stays =
        static_cast<double>(stay_) + static_cast<double>(elements) / 2 <=
        wanted;
    if (stays) stay_ += elements;
    return stays;
  }

 private:
  const double resident_;
  int64_t all_ = 0, stay_ = 0;  // elements
};

OffloadWishes WishesOf(const Layout& layout, const Slab& slab,
                       const OffloadRules& rules, bool stays) {
  OffloadWishes wishes;
  const auto take = [&](const OffloadWishes& from) {
    if (!wishes.weights) wishes.weights = from.weights;
    if (!wishes.gradients) wishes.gradients = from.gradients;
    if (!wishes.state) wishes.state = from.state;
    if (!wishes.update) wishes.update = from.update;
  };
  for (const OffloadRow& row : rules.rows) {
    if (Matches(row.match, layout, slab)) take(row.wishes);
  }
  const OffloadWishes device{Tier::kDevice, Tier::kDevice, Tier::kDevice,
                             Tier::kDevice};
  if (stays) take(device);
  take(rules.all);
  const bool of_block = slab.leader > 0 && slab.leader <= layout.blocks();
  if (rules.resident && of_block) {
    take({Tier::kHost, Tier::kHost, Tier::kHost, std::nullopt});
  }
  take(device);
  return wishes;
}

}  // namespace

std::vector<SlabTiers> PlaceSlabs(const Layout& layout,
                                  const OffloadRules& rules) {
  std::vector<SlabTiers> all;
  Spread spread(rules.resident.value_or(0));
  for (const Slab& slab : layout.slabs()) {
    const bool of_block = slab.leader > 0 && slab.leader <= layout.blocks();
    const bool stays =
        rules.resident && of_block && spread.Stays(slab.elements);
    const OffloadWishes wishes = WishesOf(layout, slab, rules, stays);
    SlabTiers tiers{.weight = *wishes.weights,
                    .gradient = *wishes.gradients,
                    .state = *wishes.state,
                    .update = *wishes.update};
    if (tiers.update == Tier::kHost) {
      tiers.weight_resident = tiers.weight == Tier::kDevice;
      tiers.gradient_resident = tiers.gradient == Tier::kDevice;
      tiers.weight = tiers.gradient = tiers.state = Tier::kHost;
    }
    all.push_back(tiers);
  }
  return all;
}

std::optional<size_t> RowWithoutMatch(const ParamRegistry& registry,
                                      const OffloadRules& rules) {
  for (size_t row = 0; row < rules.rows.size(); ++row) {
    const bool found =
        std::any_of(registry.decls.begin(), registry.decls.end(),
                    [&](const ParamDecl& decl) {
                      return Matches(At(rules.rows, row).match, decl.name);
                    });
    if (!found) return row;
  }
  return std::nullopt;
}

}  // namespace delink
