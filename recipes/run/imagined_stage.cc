#include "recipes/run/imagined_stage.h"

#include <algorithm>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Those of a stage of the pipeline that may hold more than `rank`, and itself.
std::vector<int> OthersLike(const Layout& layout, int rank, bool alike) {
  const Axes along = alike ? Axes{Axis::kTensor}
                           : Axes{Axis::kTensor, Axis::kContext, Axis::kData};
  return layout.mesh().Group(rank, along);
}

// Whether ranks that share a slab's state take as much of it each: none owns it
// alone, and a shard takes the same whichever parameters lie in it.
bool SharesAreAlike(const ParamStore& store) {
  const std::vector<PlacementRow>& rows = store.layout().placement().rows;
  if (std::ranges::none_of(
          rows, [](const PlacementRow& row) { return row.state.sharded; })) {
    return true;
  }
  const bool owned = std::ranges::any_of(
      rows, [](const PlacementRow& row) { return row.owner != kNoOwner; });
  const StateFormat plain;
  return !owned &&
         std::ranges::all_of(store.states(), [&plain](const StateSpec& spec) {
           return spec.hidden == plain && spec.outer == plain &&
                  spec.vectors == plain;
         });
}

// Bytes of the host that its planes and updates take.
int64_t HostBytes(const RunEnv& env, const ParamStore& store) {
  const std::vector<PlacementRow>& rows = store.layout().placement().rows;
  const bool updates = std::ranges::any_of(
      rows, [](const PlacementRow& row) { return row.update == Tier::kHost; });
  return PlaneBytesOf(store).host +
         (updates ? env.optimizer->ScratchBytes(store) : 0);
}

// Of the ranks of its stage of the pipeline the one that holds most, the first
// of those that are alike: they differ where their shares of the state do, and
// where what is cut is not cut evenly.
absl::StatusOr<HeaviestRank> FindHeaviest(ImaginedStage& imagined) {
  StageRun& stage = imagined.stage();
  const ParamStore& store = stage.store();
  const Layout& layout = store.layout();
  const bool alike = SharesAreAlike(store);
  if (alike && layout.mesh().tensor == 1) {
    return HeaviestRank{store.rank(), stage.account().host,
                        PlaneBytesOf(store).host};
  }
  HeaviestRank heaviest;
  // What they keep of activations is alike.
  const int64_t kept = stage.account().host - HostBytes(imagined.env(), store);
  int64_t most = -1;
  for (const int rank : OthersLike(layout, store.rank(), alike)) {
    const std::unique_ptr<Device> device = NewMetaDevice(store.device().kind());
    DELINK_ASSIGN_OR_RETURN(
        const std::unique_ptr<ParamStore> of,
        ParamStore::Create(*device, layout, rank, store.options()));
    const PlaneBytes planes = PlaneBytesOf(*of);
    const int64_t bytes =
        planes.device + std::max(stage.executor().memory().workspace,
                                 imagined.env().optimizer->ScratchBytes(*of));
    heaviest.host =
        std::max(heaviest.host, kept + HostBytes(imagined.env(), *of));
    heaviest.host_planes = std::max(heaviest.host_planes, planes.host);
    if (bytes <= most) continue;
    heaviest.rank = rank;
    most = bytes;
  }
  return heaviest;
}

}  // namespace

ImaginedStage::ImaginedStage(const RunEnv& env, int rank)
    : device_(NewMetaDevice(env.device->kind())),
      world_(env.world->size(), rank),
      network_(env.world->size(), rank),
      env_(env) {
  env_.device = device_.get();
  env_.world = &world_;
  env_.network = &network_;
  env_.lane_threads = false;
  env_.watch = nullptr;
  env_.trace = nullptr;
  if (env_.shared_plan == nullptr) env_.shared_plan = &plan_;
}

absl::StatusOr<std::unique_ptr<ImaginedStage>> ImaginedStage::Create(
    const RunEnv& env, size_t index, int rank) {
  std::unique_ptr<ImaginedStage> imagined(new ImaginedStage(env, rank));
  DELINK_ASSIGN_OR_RETURN(imagined->stage_,
                          StageRun::Create(imagined->env_, index));
  return imagined;
}

PlaneBytes PlaneBytesOf(const ParamStore& store) {
  const auto at = [&](Tier tier) {
    return store.bytes(Plane::kWeight, tier) +
           store.bytes(Plane::kGradient, tier) + store.state_bytes(tier);
  };
  return {.device = at(Tier::kDevice), .host = at(Tier::kHost)};
}

absl::Status ForEachHeaviest(ImaginedStage& first, const VisitHeaviest& visit) {
  const StageRun& stage = first.stage();
  const Mesh& mesh = stage.store().layout().mesh();
  for (int s = 0; s < mesh.pipeline; ++s) {
    MeshPlace place;
    place[Axis::kPipeline] = s;
    std::unique_ptr<ImaginedStage> made;
    ImaginedStage* of = &first;
    const auto imagine = [&](int rank) -> absl::Status {
      if (of->stage().store().rank() == rank) return absl::OkStatus();
      DELINK_ASSIGN_OR_RETURN(
          made, ImaginedStage::Create(first.env(), stage.index(), rank));
      of = made.get();
      return absl::OkStatus();
    };
    DELINK_RETURN_IF_ERROR(imagine(mesh.RankAt(place)));
    DELINK_ASSIGN_OR_RETURN(const HeaviestRank heaviest, FindHeaviest(*of));
    DELINK_RETURN_IF_ERROR(imagine(heaviest.rank));
    DELINK_RETURN_IF_ERROR(visit(*of, heaviest));
  }
  return absl::OkStatus();
}

}  // namespace delink
