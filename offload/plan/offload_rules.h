// What a stage says of the homes of its planes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace delink {

// kAuto: as budgets and rates of the machine say (offload/plan/find_place.h).
enum class Home : uint8_t { kAuto, kDevice, kHost };

// What is said of some slabs. None: nothing.
struct OffloadWishes {
  // Where these planes are when nobody works on them; what the host updates is
  // at home there, and on the device, where that is wished, besides.
  std::optional<Home> weights, gradients, state;
  std::optional<Home> update;
  // Where what their layers' forward keeps for backward is meanwhile.
  std::optional<Home> activations;
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
  // Budgets in bytes: of the device of each rank, for all that its account has
  // there, and of the memory of a machine, for all of its ranks. With the
  // first, what `all` does not say is kAuto.
  std::optional<int64_t> device, host;
  OffloadWishes all;
  // Share of the blocks' planes that stays on the device with all there is of
  // them, 0 to 1: slabs spread evenly over the blocks. Where it is given, what
  // `all` does not say of the others' planes is the host.
  std::optional<double> resident;
  std::vector<OffloadRow> rows;  // the first that matches counts, key by key

  bool any() const { return *this != OffloadRules(); }
  // Whether anything has to be found, or held against a budget.
  bool budgeted() const {
    const auto open = [](const OffloadWishes& wishes) {
      return wishes.update == Home::kAuto;
    };
    for (const OffloadRow& row : rows) {
      if (open(row.wishes)) return true;
    }
    return device || host || open(all);
  }
  friend bool operator==(const OffloadRules&, const OffloadRules&) = default;
};

}  // namespace delink
