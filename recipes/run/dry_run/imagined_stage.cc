#include "recipes/run/dry_run/imagined_stage.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/step/plan/measure.h"
#include "layers/ops/accumulate.h"
#include "recipes/run/dry_run/like_ranks.h"

namespace delink {
namespace {

// The memory of another rank of the pipeline stage of `imagined`. `layers`
// caches the measured layers by Mesh::WeightPlaceOf.
absl::StatusOr<RankMemory> MemoryOfRank(
    const ImaginedStage& imagined, int rank,
    std::map<int, std::vector<LayerPlan>>& layers) {
  const StageRun& stage = imagined.stage();
  const ParamStore& store = stage.store();
  const std::unique_ptr<Device> device = NewMetaDevice(store.device().kind());
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> there,
                          ParamStore::Create(*device, store.shared_layout(),
                                             rank, store.options()));
  const Executor& executor = stage.executor();
  const int place = store.layout().mesh().WeightPlaceOf(rank);
  if (!layers.contains(place)) {
    layers[place] =
        MeasureLayers(*imagined.env().model, *there, executor.memory().batch,
                      Accumulate, imagined.env().measured.get());
  }
  RankMemory memory{
      .rank = rank,
      .account = AccountOf(*there, executor.MemoryOn(*there, layers[place])),
      .planes = PlaneBytesOf(*there)};
  memory.account.overhead = stage.account().overhead;
  return memory;
}

absl::StatusOr<HeaviestRank> FindHeaviest(const ImaginedStage& imagined) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<RankMemory> ranks,
                          MemoryOfRanks(imagined));
  HeaviestRank heaviest;
  int64_t most = -1;
  for (const auto& [rank, account, planes] : ranks) {
    heaviest.host = std::max(heaviest.host, account.host);
    if (account.total() <= most) continue;
    heaviest.rank = rank;
    most = account.total();
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
  if (env_.shared == nullptr) env_.shared = &shared_;
}

absl::StatusOr<std::unique_ptr<ImaginedStage>> ImaginedStage::Create(
    const RunEnv& env, size_t index, int rank) {
  return CreateLaidOut(env, index, index, rank);
}

absl::StatusOr<std::unique_ptr<ImaginedStage>> ImaginedStage::CreateLaidOut(
    const RunEnv& env, size_t index, size_t layout, int rank) {
  std::unique_ptr<ImaginedStage> imagined(new ImaginedStage(env, rank));
  imagined->layout_ = layout;
  DELINK_ASSIGN_OR_RETURN(
      imagined->stage_, StageRun::CreateLaidOut(imagined->env_, index, layout));
  return imagined;
}

absl::StatusOr<std::unique_ptr<ImaginedStage>> ImaginedStage::On(
    int rank) const {
  return CreateLaidOut(env_, stage_->index(), layout_, rank);
}

PlaneBytes PlaneBytesOf(const ParamStore& store) {
  const auto at = [&](Tier tier) {
    return store.bytes(Plane::kWeight, tier) +
           store.bytes(Plane::kGradient, tier) + store.state_bytes(tier);
  };
  return {.device = at(Tier::kDevice), .host = at(Tier::kHost)};
}

PlaneBytes Most(const PlaneBytes& a, const PlaneBytes& b) {
  return {.device = std::max(a.device, b.device),
          .host = std::max(a.host, b.host)};
}

RankMemory MemoryOf(const ImaginedStage& imagined) {
  const StageRun& stage = imagined.stage();
  return {.rank = stage.store().rank(),
          .account = stage.account(),
          .planes = PlaneBytesOf(stage.store())};
}

absl::StatusOr<std::vector<RankMemory>> MemoryOfRanks(
    const ImaginedStage& imagined) {
  const ParamStore& store = imagined.stage().store();
  const RankMemory own = MemoryOf(imagined);
  const std::vector<int> ranks = store.layout().mesh().Group(
      own.rank, {Axis::kTensor, Axis::kContext, Axis::kData});
  const std::vector<int> like = LikeRanks(store, ranks);
  const int like_own =
      like[std::ranges::lower_bound(ranks, own.rank) - ranks.begin()];
  std::map<int, RankMemory> first = {{like_own, own}};
  std::map<int, std::vector<LayerPlan>> layers;
  std::vector<RankMemory> all;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!first.contains(like[i])) {
      DELINK_ASSIGN_OR_RETURN(first[like[i]],
                              MemoryOfRank(imagined, ranks[i], layers));
    }
    all.push_back(first[like[i]]);
    all.back().rank = ranks[i];
  }
  return all;
}

absl::StatusOr<std::vector<RankMemory>> MemoryByRank(
    const ImaginedStage& first) {
  const Mesh& mesh = first.stage().store().layout().mesh();
  std::vector<RankMemory> by_rank(static_cast<size_t>(mesh.ranks()));
  for (int s = 0; s < mesh.pipeline; ++s) {
    MeshPlace place;
    place[Axis::kPipeline] = s;
    std::unique_ptr<ImaginedStage> made;
    if (s > 0) {
      DELINK_ASSIGN_OR_RETURN(made, first.On(mesh.RankAt(place)));
    }
    DELINK_ASSIGN_OR_RETURN(const std::vector<RankMemory> ranks,
                            MemoryOfRanks(s > 0 ? *made : first));
    for (const RankMemory& of : ranks) At(by_rank, of.rank) = of;
  }
  return by_rank;
}

absl::StatusOr<std::vector<PlaneBytes>> PlanesByRank(const ParamStore& store) {
  std::vector<int> ranks(static_cast<size_t>(store.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::vector<int> like = LikeRanks(store, ranks);
  std::vector<PlaneBytes> planes;
  for (const int rank : ranks) {
    if (At(like, rank) < rank) {
      planes.push_back(At(planes, At(like, rank)));
      continue;
    }
    const std::unique_ptr<Device> device = NewMetaDevice(store.device().kind());
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> there,
                            ParamStore::Create(*device, store.shared_layout(),
                                               rank, store.options()));
    planes.push_back(PlaneBytesOf(*there));
  }
  return planes;
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
      DELINK_ASSIGN_OR_RETURN(made, first.On(rank));
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
