// What a stage says of the homes of its planes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/module/placement.h"

namespace delink {

// What is said of some slabs. None: nothing.
struct OffloadWishes {
  // Where these planes are when nobody works on them; what the host updates is
  // at home there, and on the device, where that is wished, besides.
  std::optional<Tier> weights, gradients, state;
  std::optional<Tier> update;
  friend bool operator==(const OffloadWishes&, const OffloadWishes&) = default;
};

// Of slabs with a parameter whose logical name the pattern matches, as
// HyperGroup's do (framework/optim/param_rules.h).
struct OffloadRow {
  std::string match;
  OffloadWishes wishes;
  friend bool operator==(const OffloadRow&, const OffloadRow&) = default;
};

struct OffloadRules {
  OffloadWishes all;
  // Share of the blocks' planes that stays on the device with all there is of
  // them, 0 to 1: slabs spread evenly over the blocks. Where it is given, what
  // `all` does not say of the others' planes is the host.
  std::optional<double> resident;
  std::vector<OffloadRow> rows;  // the first that matches counts, key by key

  bool any() const {
    return all != OffloadWishes() || resident.has_value() || !rows.empty();
  }
  friend bool operator==(const OffloadRules&, const OffloadRules&) = default;
};

}  // namespace delink
