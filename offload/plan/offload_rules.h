// The rules of a stage for the placement of its planes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace delink {

// kAuto: as budgets and rates of the machine say (offload/plan/find_place.h).
enum class Home : uint8_t { kAuto, kDevice, kHost };

// The rules for some slabs; none: no rule.
struct OffloadWishes {
  // Where these planes are kept between uses. Planes that the host updates are
  // host-resident; kDevice adds a second copy on the device.
  std::optional<Home> weights, gradients, state;
  std::optional<Home> update;
  // Where the activations of their layers are between forward and backward.
  std::optional<Home> activations;
  friend bool operator==(const OffloadWishes&, const OffloadWishes&) = default;
};

// For slabs with a parameter whose logical name the pattern matches, like
// HyperGroup's patterns (framework/optim/param_rules.h).
struct OffloadRow {
  std::string match;
  OffloadWishes wishes;
  friend bool operator==(const OffloadRow&, const OffloadRow&) = default;
};

struct OffloadRules {
  // Budgets in bytes: of each rank's device, for all memory that its account
  // has there; and of a machine's host memory, for all of its ranks together.
  // If `device` is set, a key that `all` does not set is kAuto.
  std::optional<int64_t> device, host;
  OffloadWishes all;
  // Share of the blocks' parameters that stays on the device with all their
  // planes, 0 to 1: slabs spread evenly over the blocks. If it is set, planes
  // of the other slabs of blocks are host-resident where `all` sets nothing.
  std::optional<double> resident;
  std::vector<OffloadRow> rows;  // the first that matches counts, key by key

  bool any() const { return *this != OffloadRules(); }
  // Whether a placement must be found or checked against a budget.
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
