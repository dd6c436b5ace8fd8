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

// Chooses the slabs that stay on the device, so that they are spread evenly and
// have the share `resident` of the elements.
class Spread {
 public:
  explicit Spread(double resident) : resident_(resident) {}
  bool Stays(int64_t elements) {
    const double wanted = resident_ * static_cast<double>(all_ + elements);
    all_ += elements;
    // True if at least half of the slab is within the share.
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

bool IsOfBlock(const Layout& layout, const Slab& slab) {
  return slab.leader > 0 && slab.leader <= layout.blocks();
}

constexpr OffloadWishes AllAt(Home home) {
  return {home, home, home, home, home};
}

OffloadWishes WishesOf(const Layout& layout, const Slab& slab,
                       const OffloadRules& rules, bool stays) {
  OffloadWishes wishes;
  const auto take = [&](const OffloadWishes& from) {
    if (!wishes.weights) wishes.weights = from.weights;
    if (!wishes.gradients) wishes.gradients = from.gradients;
    if (!wishes.state) wishes.state = from.state;
    if (!wishes.update) wishes.update = from.update;
    if (!wishes.activations) wishes.activations = from.activations;
  };
  for (const OffloadRow& row : rules.rows) {
    if (Matches(row.match, layout, slab)) take(row.wishes);
  }
  if (stays) take(AllAt(Home::kDevice));
  take(rules.all);
  if (rules.resident && IsOfBlock(layout, slab)) {
    take({.weights = Home::kHost,
          .gradients = Home::kHost,
          .state = Home::kHost});
  }
  if (rules.device) take(AllAt(Home::kAuto));
  take(AllAt(Home::kDevice));
  return wishes;
}

// Decides, for slabs in the order in which a forward needs them, whether the
// host updates them: the last ones, up to a share of all elements.
class LastUpdates {
 public:
  LastUpdates(double share, int64_t elements)
      : first_((1 - share) * static_cast<double>(elements)) {}
  bool IsOfHost(int64_t elements) {
    const double middle =
        static_cast<double>(before_) + static_cast<double>(elements) / 2;
    before_ += elements;
    return middle >= first_;
  }

 private:
  const double first_;
  int64_t before_ = 0;
};

// The homes of planes by an AutoPlace, slab after slab.
class AutoHomes {
 public:
  explicit AutoHomes(const AutoPlace& found)
      : state_(1 - found.state),
        gradients_(1 - found.gradients),
        weights_(1 - found.weights),
        ends_(found.ends > 0) {}

  // Those of the next slab.
  OffloadWishes Next(const Slab& slab, bool of_block) {
    const auto home = [&](Spread& spread) {
      return of_block && !spread.Stays(slab.elements) ? Home::kHost
                                                      : Home::kDevice;
    };
    OffloadWishes homes{.weights = home(weights_),
                        .gradients = home(gradients_),
                        .state = home(state_)};
    if (!of_block && ends_) homes.state = Home::kHost;
    return homes;
  }

 private:
  Spread state_, gradients_, weights_;
  const bool ends_;
};

Tier TierOf(std::optional<Home> wish, std::optional<Home> found) {
  const Home home = *wish == Home::kAuto ? *found : *wish;
  return home == Home::kHost ? Tier::kHost : Tier::kDevice;
}

}  // namespace

std::vector<SlabTiers> PlaceSlabs(const Layout& layout,
                                  const OffloadRules& rules,
                                  const AutoPlace& found) {
  std::vector<SlabTiers> all;
  std::vector<bool> open_updates;  // of slabs with their state on the host
  int64_t open_elements = 0;
  Spread spread(rules.resident.value_or(0));
  AutoHomes homes(found);
  for (const Slab& slab : layout.slabs()) {
    const bool of_block = IsOfBlock(layout, slab);
    const bool stays =
        rules.resident && of_block && spread.Stays(slab.elements);
    const OffloadWishes wishes = WishesOf(layout, slab, rules, stays);
    const OffloadWishes open = homes.Next(slab, of_block);
    SlabTiers tiers{.weight = TierOf(wishes.weights, open.weights),
                    .gradient = TierOf(wishes.gradients, open.gradients),
                    .state = TierOf(wishes.state, open.state)};
    tiers.update = TierOf(wishes.update, Home::kDevice);
    open_updates.push_back(wishes.update == Home::kAuto &&
                           tiers.state == Tier::kHost);
    if (open_updates.back()) open_elements += slab.elements;
    all.push_back(tiers);
  }
  LastUpdates last(found.host_updates, open_elements);
  for (size_t s = 0; s < all.size(); ++s) {
    SlabTiers& tiers = all[s];
    if (open_updates[s] && last.IsOfHost(layout.slabs()[s].elements)) {
      tiers.update = Tier::kHost;
    }
    if (tiers.update != Tier::kHost) continue;
    tiers.weight_resident = tiers.weight == Tier::kDevice;
    tiers.gradient_resident = tiers.gradient == Tier::kDevice;
    tiers.weight = tiers.gradient = tiers.state = Tier::kHost;
  }
  return all;
}

int64_t BlockSlabs(const Layout& layout) {
  return std::ranges::count_if(layout.slabs(), [&](const Slab& slab) {
    return IsOfBlock(layout, slab);
  });
}

BlockActivations PlaceActivations(const Layout& layout,
                                  const OffloadRules& rules,
                                  const AutoPlace& found) {
  const std::vector<int>& visited = layout.visited();
  std::vector<bool> leaves(visited.size()), again(visited.size());
  Spread kept(1 - found.activations), recomputed(found.recompute);
  for (size_t place = 1; place + 1 < visited.size(); ++place) {
    leaves[place] = !kept.Stays(1);
    again[place] = leaves[place] && recomputed.Stays(1);
  }
  std::vector<bool> stored(visited.size()), open(visited.size());
  Spread spread(rules.resident.value_or(0));
  for (const Slab& slab : layout.slabs()) {
    const bool of_block = IsOfBlock(layout, slab);
    const bool stays =
        rules.resident && of_block && spread.Stays(slab.elements);
    const OffloadWishes wishes = WishesOf(layout, slab, rules, stays);
    const Home home = *wishes.activations;
    for (const int layer : slab.layers) {
      if (layer < 1 || layer > layout.blocks()) continue;
      const auto place = static_cast<size_t>(
          std::lower_bound(visited.begin(), visited.end(), layer) -
          visited.begin());
      if (home == Home::kHost) stored[place] = true;
      if (home == Home::kAuto) open[place] = true;
    }
  }
  BlockActivations activations{.stored = stored,
                               .recomputed = std::vector<bool>(stored.size())};
  for (size_t place = 0; place < stored.size(); ++place) {
    if (stored[place] || !open[place]) continue;
    activations.recomputed[place] = again[place];
    activations.stored[place] = leaves[place] && !again[place];
  }
  return activations;
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
