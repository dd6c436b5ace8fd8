// Hyper-parameters of each parameter: those of the optimizer, except where a
// group overrides them.
//
// A group matches a part ("mlp"), or a parameter's logical name
// ("blocks/3/attn/qkv/weight") by a pattern in which * stands for any
// characters, including /, ? for one and [ab] for a or b. The first group that
// matches counts. A parameter that is tied to another (a head to the embedding)
// has the hyper-parameters of that one.
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

// Values that may differ between parameters; an optimizer reads those it uses.
struct Hyper {
  double lr_scale = 1;  // times the step's learning rate
  double decay = 0;     // of weights
  double beta1 = 0, beta2 = 0;
  double momentum = 0;
  friend bool operator==(const Hyper&, const Hyper&) = default;
};

struct HyperGroup {
  std::string match;
  // Instead of `match`: the part whose parameters match.
  std::string part;
  std::optional<double> lr_scale;
  // Also for parameters that are declared without decay, as norms and biases.
  std::optional<double> decay;
  std::optional<double> beta1, beta2, momentum;
};

class ParamRules {
 public:
  // The same for all, except parameters that are declared without decay.
  explicit ParamRules(const Hyper& all) : all_(all) {}
  // InvalidArgument if the pattern of a group, number *wrong, matches nothing,
  // only tied parameters, or only what groups before it match.
  static absl::StatusOr<ParamRules> Create(
      const ParamRegistry& registry, const Hyper& all,
      const std::vector<HyperGroup>& groups, size_t* wrong);

  // The values for declaration number `decl` of the registry.
  Hyper HyperOf(const ParamRegistry& registry, int decl) const;
  // The number of the group that counts for it; -1: none.
  int GroupOf(int decl) const {
    return group_of_.empty() ? -1 : At(group_of_, decl);
  }

  // InvalidArgument if layers that share a slab have different values: a shared
  // slab has one update.
  absl::Status CheckSharing(const ParamRegistry& registry, int blocks,
                            const SharingMap& sharing) const;

 private:
  Hyper all_;
  std::vector<HyperGroup> groups_;
  std::vector<int> group_of_;  // by declaration, -1: none; empty: no groups
};

// Elements [begin, end) of a slab that this rank updates with the same
// hyper-parameters. The padding between parameters is zero and stays zero.
struct UpdateRun {
  int64_t begin = 0, end = 0;
  Hyper hyper;
};
std::vector<UpdateRun> RunsOf(const ParamStore& store, int slab,
                              const ParamRules& rules);

}  // namespace delink
