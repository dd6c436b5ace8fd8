#include "framework/sharing/grow.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

class Grower {
 public:
  Grower(const ParamRegistry& registry, int blocks, const SharingMap& from,
         const SharingMap& to, const Growth& growth)
      : registry_(registry),
        blocks_(blocks),
        from_(from),
        growth_(growth),
        visited_(from.VisitedOf(blocks)),
        old_slabs_(LayOutSlabs(registry, blocks, from)),
        new_slabs_(LayOutSlabs(registry, blocks, to)) {
    for (size_t s = 0; s < old_slabs_.size(); ++s) {
      for (const int layer : old_slabs_[s].layers) {
        old_of_[{old_slabs_[s].part, layer}] = static_cast<int>(s);
      }
    }
  }

  absl::StatusOr<std::vector<SlabOrigin>> Run() {
    DELINK_ASSIGN_OR_RETURN(
        sets_,
        ResolveSharing(growth_.share, PartsOf(registry_, blocks_), blocks_));
    std::vector<SlabOrigin> origins;
    for (const Slab& slab : new_slabs_) {
      DELINK_ASSIGN_OR_RETURN(origins.emplace_back(), OriginOf(slab));
    }
    if (growth_.policy == GrowPolicy::kZero) {
      DELINK_RETURN_IF_ERROR(CheckZero(origins));
    }
    return origins;
  }

 private:
  bool WasVisited(int layer) const { return from_.VisitsLayer(layer, blocks_); }

  // The old slab that a layer used for a part; -1 if none.
  int OldSlab(const std::string& part, int layer) const {
    const auto at = old_of_.find({part, layer});
    return at == old_of_.end() ? -1 : at->second;
  }

  SlabOrigin From(int old, const Slab& slab) const {
    return {.slab = old,
            .before = static_cast<int>(At(old_slabs_, old).layers.size()),
            .after = static_cast<int>(slab.layers.size())};
  }

  absl::StatusOr<SlabOrigin> OriginOf(const Slab& slab) const {
    int kept = -1, first = -1;
    for (const int layer : slab.layers) {
      if (!WasVisited(layer)) continue;
      const int old = OldSlab(slab.part, layer);
      if (kept >= 0 && kept != old) {
        return absl::InvalidArgumentError(absl::StrCat(
            "blocks ", first - 1, " and ", layer - 1, " share ", slab.part,
            " after the switch but did not before it: a switch only cuts "
            "links, so each stage must share no more than the one before"));
      }
      kept = old;
      first = layer;
    }
    if (kept >= 0) return From(kept, slab);
    if (growth_.policy == GrowPolicy::kRandom ||
        growth_.policy == GrowPolicy::kZero) {
      return SlabOrigin{.slab = -1,
                        .after = static_cast<int>(slab.layers.size())};
    }
    const int model = Model(slab.part, slab.leader - 1);
    const int old = OldSlab(slab.part, model + 1);
    if (old < 0 || !SameParameters(At(old_slabs_, old), slab)) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", slab.leader - 1, " would be a copy of block ",
                       model, ", which declares other parameters in ",
                       slab.part, "; let it begin as \"random\" or \"zero\""));
    }
    SlabOrigin origin = From(old, slab);
    origin.copied = true;
    return origin;
  }

  // The visited block whose `part` a new block gets.
  int Model(const std::string& part, int block) const {
    if (growth_.policy == GrowPolicy::kCycle) {
      return At(visited_, block % static_cast<int>(visited_.size()));
    }
    const auto sets = sets_.leaders.find(part);
    int model = visited_[0];
    bool found = false;
    for (const int candidate : visited_) {
      if (sets != sets_.leaders.end()) {
        if (At(sets->second, candidate) != At(sets->second, block)) continue;
        if (OldSlab(part, candidate + 1) < 0) continue;
      }
      if (found && candidate > block) break;
      model = candidate;
      found = true;
    }
    return model;
  }

  bool SameParameters(const Slab& a, const Slab& b) const {
    return std::equal(
        a.params.begin(), a.params.end(), b.params.begin(), b.params.end(),
        [&](const SlabParam& x, const SlabParam& y) {
          const ParamDecl& p = registry_.decl(x.decl);
          const ParamDecl& q = registry_.decl(y.decl);
          return p.local == q.local && p.spec.shape == q.spec.shape;
        });
  }

  // Checks that each new block writes to the residual stream, and only with
  // parameters that begin fresh.
  absl::Status CheckZero(const std::vector<SlabOrigin>& origins) const {
    std::set<int> writers;
    for (size_t s = 0; s < new_slabs_.size(); ++s) {
      const Slab& slab = new_slabs_[s];
      const bool writes = std::any_of(
          slab.params.begin(), slab.params.end(), [&](const SlabParam& p) {
            return registry_.decl(p.decl).spec.residual;
          });
      for (const int layer : slab.layers) {
        if (WasVisited(layer) || !writes) continue;
        writers.insert(layer);
        if (origins[s].fresh()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("block ", layer - 1,
                         " cannot begin with zeros: it shares ", slab.part,
                         " with blocks that were visited before; use \"copy\", "
                         "or share nothing with them"));
      }
    }
    for (const Slab& slab : new_slabs_) {
      for (const int layer : slab.layers) {
        if (WasVisited(layer) || writers.contains(layer)) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "block ", layer - 1,
            " cannot begin with zeros: none of its "
            "parameters is declared to write to the residual stream "
            "(ParamSpec::residual); use another way to grow"));
      }
    }
    return absl::OkStatus();
  }

  const ParamRegistry& registry_;
  const int blocks_;
  const SharingMap& from_;
  const Growth& growth_;
  const std::vector<int> visited_;  // before
  const std::vector<Slab> old_slabs_, new_slabs_;
  std::map<std::pair<std::string, int>, int> old_of_;  // by part and layer
  SharingMap sets_;  // of all blocks, by the share of the stage before
};

}  // namespace

absl::StatusOr<std::vector<SlabOrigin>> GrowthOf(const ParamRegistry& registry,
                                                 int blocks,
                                                 const SharingMap& from,
                                                 const SharingMap& to,
                                                 const Growth& growth) {
  const std::vector<int> before = from.VisitedOf(blocks);
  const std::vector<int> after = to.VisitedOf(blocks);
  if (before == after) return RelationOf(registry, blocks, from, to);
  if (!std::includes(after.begin(), after.end(), before.begin(),
                     before.end())) {
    return absl::InvalidArgumentError(
        absl::StrCat("blocks ", absl::StrJoin(before, ","),
                     " are visited before the switch, but after it only ",
                     absl::StrJoin(after, ","),
                     ": a switch cannot drop blocks; give a larger depth, or a "
                     "visit that keeps them"));
  }
  return Grower(registry, blocks, from, to, growth).Run();
}

Init FreshInit(const ParamSpec& spec, const Growth& growth) {
  const bool zero = growth.policy == GrowPolicy::kZero && spec.residual;
  return zero ? Init::Zeros() : spec.init;
}

void InitFresh(ParamStore& to, const std::vector<SlabOrigin>& origins,
               const Growth& growth) {
  for (const LogicalTensor& tensor : to.layout().tensors()) {
    if (!tensor.link.empty() || !At(origins, tensor.slab).fresh()) continue;
    const ParamSpec& spec = to.layout().SpecOf(tensor);
    to.InitTensor(growth.seed, tensor, FreshInit(spec, growth));
  }
}

}  // namespace delink
