// Hyper-parameters of each parameter: those of the optimizer, and what groups,
// found by name, have otherwise.
//
// A group matches a parameter's logical name ("blocks/3/attn/qkv/weight") by a
// pattern in which * stands for any characters, / among them, ? for one and
// [ab] for one of some. The first group that matches counts. A parameter that
// is tied to another (a head to the embedding) has that one's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/module/param_store.h"

namespace delink {

// What may differ from parameter to parameter; an optimizer reads what it has.
struct Hyper {
  double lr_scale = 1;  // times the step's learning rate
  double decay = 0;     // of weights
  double beta1 = 0, beta2 = 0;
  double momentum = 0;
  friend bool operator==(const Hyper&, const Hyper&) = default;
};

struct HyperGroup {
  std::string match;
  std::optional<double> lr_scale;
  // Also of parameters that are declared to have none, as norms and biases.
  std::optional<double> decay;
  std::optional<double> beta1, beta2, momentum;
};

class ParamRules {
 public:
  // The same for all, but no decay of parameters that are declared so.
  explicit ParamRules(const Hyper& all) : all_(all) {}
  // InvalidArgument: the pattern of a group, number *wrong, matches nothing, or
  // only what groups before it match.
  static absl::StatusOr<ParamRules> Create(
      const ParamRegistry& registry, const Hyper& all,
      const std::vector<HyperGroup>& groups, size_t* wrong);

  // Of declaration number `decl` of the registry.
  Hyper HyperOf(const ParamRegistry& registry, int decl) const;
  // The number of the group that counts for it; -1: none.
  int GroupOf(int decl) const {
    return group_of_.empty() ? -1 : At(group_of_, decl);
  }

  // InvalidArgument where layers that share a slab would want different values:
  // there is one update for all.
  absl::Status CheckSharing(const ParamRegistry& registry, int blocks,
                            const SharingMap& sharing) const;

 private:
  Hyper all_;
  std::vector<HyperGroup> groups_;
  std::vector<int> group_of_;  // by declaration, -1: none; empty: no groups
};

// Neighbours in a slab that are updated alike, as far as this rank updates
// them: elements [begin, end) of the slab. The padding between them is zero and
// stays zero.
struct UpdateRun {
  int64_t begin = 0, end = 0;
  Hyper hyper;
};
std::vector<UpdateRun> RunsOf(const ParamStore& store, int slab,
                              const ParamRules& rules);

}  // namespace delink
