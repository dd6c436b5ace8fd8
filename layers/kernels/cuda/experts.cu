#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "framework/base/check.h"
#include "layers/kernels/cuda/assign.cuh"
#include "layers/kernels/cuda/balance.cuh"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/experts.cuh"
#include "layers/kernels/cuda/grouped.cuh"
#include "layers/kernels/cuda/routing.cuh"

namespace delink::cuda {
namespace {

// Bounds of segments of pairs.
constexpr int64_t kLeastSegment = 256, kMostSegments = 512;

unsigned Blocks(int64_t count, int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

dim3 RowGrid(Stream& stream, int64_t rows) {
  return dim3(static_cast<unsigned>(
      std::min(rows, int64_t{32} * InfoOf(stream).multiprocessors)));
}

// Blocks of a grouped product, and the tiles that the columns of C have.
struct GroupedGrid {
  dim3 blocks;
  unsigned tiles;
};
GroupedGrid GridOf(const GroupedMatmulArgs& s, int64_t tile) {
  const bool weight = s.form == GroupedForm::kWeight;
  const unsigned tiles =
      Blocks(s.form == GroupedForm::kForward ? s.out : s.in, tile);
  const int64_t rows = weight ? s.E * Blocks(s.out, tile) : s.cap / tile + s.E;
  DELINK_CHECK_LE(rows * tiles, int64_t{0x7fffffff}) << "tiles of experts";
  return {dim3(static_cast<unsigned>(rows * tiles)), tiles};
}

template <GroupedForm kForm, typename P>
void LaunchTensor(Stream& stream, const GroupedMatmulArgs& s) {
  const auto [blocks, tiles] = GridOf(s, kTensorTile);
  const bool x = CanPack<__nv_bfloat16>(s.x, s.in);
  const bool y = CanPack<__nv_bfloat16>(s.y, s.out);
  const bool w = CanPack<__nv_bfloat16>(s.w, s.in);
  const auto pairs = [](const void* c, int64_t columns) {
    return reinterpret_cast<uintptr_t>(c) % sizeof(Pack<P, 2>) == 0 &&
           columns % 2 == 0;
  };
  TensorAccess access = {x, w, pairs(s.y, s.out)};
  if (kForm == GroupedForm::kInput) access = {y, w, pairs(s.x, s.in)};
  if (kForm == GroupedForm::kWeight) access = {y, x, pairs(s.w, s.in)};
  Launch(GroupedTensorKernel<kForm, P>, blocks, dim3(kTensorThreads), 0, stream,
         s, tiles, access);
}

}  // namespace

template <typename T>
void Route(Stream& stream, const RouteArgs& s) {
  DELINK_CHECK_LE(s.form.groups, int64_t{kMaxGroups}) << "groups of a router";
  if (s.N == 0 || s.k == 0) return;
  Launch(RouteKernel, dim3(Blocks(s.N * s.form.prototypes, kRouteWarps)),
         dim3(kRouteWarps * kWarp), 0, stream, s);
}

template <typename T>
void RouteBackward(Stream& stream, const RouteBackwardArgs& s) {
  if (s.N == 0 || s.E == 0) return;
  Launch(RouteBackwardKernel, dim3(Blocks(s.N, kRouteWarps)),
         dim3(kRouteWarps * kWarp), 0, stream, s);
}

template <typename T>
void RouteStatistics(Stream& stream, const RouteStatisticsArgs& s) {
  if (s.N == 0) return;
  Launch(RouteStatisticsKernel, dim3(Blocks(s.N, kRouteWarps)),
         dim3(kRouteWarps * kWarp), 0, stream, s);
}

template <typename T>
void SumRows(Stream& stream, const SumRowsArgs& s) {
  if (s.R == 0) return;
  Launch(SumRowsKernel, dim3(static_cast<unsigned>(s.R)), dim3(kAssignThreads),
         0, stream, s);
}

template <typename T>
void RecordLoads(Stream& stream, const RecordLoadsArgs& s) {
  Launch(RecordLoadsKernel, dim3(1), dim3(kAssignThreads), 0, stream, s);
}

template <typename T>
void CountPairs(Stream& stream, const CountPairsArgs& s) {
  if (s.G == 0) return;
  Launch(CountPairsKernel,
         dim3(Blocks(s.E + 1, kAssignThreads), static_cast<unsigned>(s.G)),
         dim3(kAssignThreads), 0, stream, s);
}

template <typename T>
void Balance(Stream& stream, const BalanceArgs& s) {
  if (s.G * s.E == 0) return;
  Launch(BalanceKernel, dim3(Blocks(s.G * s.E, kAssignThreads)),
         dim3(kAssignThreads), 0, stream, s);
}

template <typename T>
void NumberTokens(Stream& stream, const NumberTokensArgs& s) {
  if (s.N == 0) return;
  Launch(NumberTokensKernel, dim3(Blocks(s.N, kAssignThreads)),
         dim3(kAssignThreads), 0, stream, s);
}

template <typename T>
void OrderTokens(Stream& stream, const OrderTokensArgs& s) {
  if (s.N * s.k == 0) return;
  Launch(OrderTokensKernel, dim3(Blocks(s.N * s.k, kAssignThreads)),
         dim3(kAssignThreads), 0, stream, s);
}

template <typename T>
void KeptIds(Stream& stream, const KeptIdsArgs& s) {
  if (s.N * s.k == 0) return;
  Launch(KeptIdsKernel, dim3(Blocks(s.N * s.k, kAssignThreads)),
         dim3(kAssignThreads), 0, stream, s);
}

template <typename T>
void AssignRows(Stream& stream, const AssignRowsArgs& s) {
  if (s.E == 0) return;
  const int64_t pairs = s.N * s.k;
  const int64_t most = std::min(
      kMostSegments,
      kScratchBytes / 2 / (s.E * static_cast<int64_t>(sizeof(PairCount))));
  DELINK_CHECK_GT(most, int64_t{0}) << "experts";
  AssignPass pass = {.s = s};
  pass.segment = std::max(
      kLeastSegment, Blocks((pairs + most - 1) / most, kWarp) * int64_t{kWarp});
  pass.segments = (pairs + pass.segment - 1) / pass.segment;
  pass.bits = std::bit_width(static_cast<uint64_t>(s.E - 1));
  pass.counts = static_cast<PairCount*>(InfoOf(stream).scratch);
  pass.starts =
      s.capacity > 0
          ? reinterpret_cast<int32_t*>(pass.counts + s.E * pass.segments)
          : s.offsets;
  const dim3 experts(static_cast<unsigned>(s.E)), warp(kWarp);
  const dim3 segments(Blocks(pass.segments, kRouteWarps));
  const dim3 warps(kRouteWarps * kWarp), threads(kAssignThreads);
  Launch(CountSegmentsKernel, segments, warps, 0, stream, pass);
  Launch(AddUpSegmentsKernel, experts, warp, 0, stream, pass);
  Launch(AddUpOffsetsKernel, dim3(1), warp, 0, stream, pass.starts, s.E);
  Launch(PlacePairsKernel, segments, warps, 0, stream, pass);
  if (s.capacity == 0) return;
  Launch(KeepPairsKernel, experts, threads, 0, stream, pass);
  Launch(AddUpOffsetsKernel, dim3(1), warp, 0, stream, s.offsets, s.E);
  Launch(PlaceKeptKernel, dim3(Blocks(pairs, kAssignThreads)), threads, 0,
         stream, s);
}

template <typename T>
void AssignSlots(Stream& stream, const AssignSlotsArgs& s) {
  if (s.ranks == 0) return;
  Launch(AssignSlotsKernel, dim3(static_cast<unsigned>(s.ranges())),
         dim3(kAssignThreads), 0, stream, s);
  if (s.lost == nullptr) return;
  Launch(CountLostKernel, dim3(1), dim3(kAssignThreads), 0, stream, s);
}

template <typename T>
void GatherRows(Stream& stream, const GatherRowsArgs& s) {
  if (s.cap == 0 || s.D == 0) return;
  Launch(GatherRowsKernel<DeviceType<T>>, RowGrid(stream, s.cap),
         dim3(kRowThreadsOfExperts), 0, stream, s);
}

template <typename T>
void CombineRows(Stream& stream, const CombineRowsArgs& s) {
  if (s.N == 0 || s.D == 0) return;
  Launch(CombineRowsKernel<DeviceType<T>>, RowGrid(stream, s.N),
         dim3(kRowThreadsOfExperts), 0, stream, s);
}

template <typename T>
void GroupedMatmul(Stream& stream, const GroupedMatmulArgs& s) {
  if (s.E == 0 || s.in == 0 || s.out == 0) return;
  if (s.cap == 0 && s.form != GroupedForm::kWeight) return;
  if constexpr (std::is_same_v<T, float>) {
    const auto [blocks, tiles] = GridOf(s, kMatmulTile);
    Launch(GroupedFloatKernel, blocks, dim3(kMatmulThreads), 0, stream, s,
           tiles);
  } else if (s.form == GroupedForm::kForward) {
    LaunchTensor<GroupedForm::kForward, __nv_bfloat16>(stream, s);
  } else if (s.form == GroupedForm::kInput) {
    LaunchTensor<GroupedForm::kInput, __nv_bfloat16>(stream, s);
  } else if (s.narrow) {
    LaunchTensor<GroupedForm::kWeight, __nv_bfloat16>(stream, s);
  } else {
    LaunchTensor<GroupedForm::kWeight, float>(stream, s);
  }
}

template <typename T>
void GroupedBias(Stream& stream, const GroupedBiasArgs& s) {
  if (s.E == 0 || s.cap == 0 || s.D == 0) return;
  dim3 grid = RowGrid(stream, s.cap);
  grid.y = static_cast<unsigned>(s.E);
  Launch(GroupedBiasKernel<DeviceType<T>>, grid, dim3(kRowThreadsOfExperts), 0,
         stream, s);
}

template <typename T>
void GroupedBiasGrad(Stream& stream, const GroupedBiasGradArgs& s) {
  if (s.E == 0 || s.D == 0) return;
  Launch(GroupedBiasGradKernel<DeviceType<T>>,
         dim3(Blocks(s.D, kRowThreadsOfExperts), static_cast<unsigned>(s.E)),
         dim3(kRowThreadsOfExperts), 0, stream, s);
}

template <typename T>
void GroupedBiasGates(Stream& stream, const GroupedBiasGatesArgs& s) {
  if (s.E == 0 || s.cap == 0) return;
  dim3 grid = RowGrid(stream, s.cap);
  grid.y = static_cast<unsigned>(s.E);
  Launch(GroupedBiasGatesKernel<DeviceType<T>>, grid,
         dim3(kRowThreadsOfExperts), 0, stream, s);
}

template <typename T>
void ExpertActForward(Stream& stream, const ExpertActForwardArgs& s) {
  if (s.cap == 0 || s.F == 0) return;
  Launch(ExpertActForwardKernel<DeviceType<T>>, RowGrid(stream, s.cap),
         dim3(kRowThreadsOfExperts), 0, stream, s);
}

template <typename T>
void ExpertActBackward(Stream& stream, const ExpertActBackwardArgs& s) {
  if (s.cap == 0 || s.F == 0) return;
  Launch(ExpertActBackwardKernel<DeviceType<T>>, RowGrid(stream, s.cap),
         dim3(kRowThreadsOfExperts), 0, stream, s);
}

#define DELINK_INSTANTIATE(T)                                              \
  template void Route<T>(Stream&, const RouteArgs&);                       \
  template void RouteBackward<T>(Stream&, const RouteBackwardArgs&);       \
  template void RouteStatistics<T>(Stream&, const RouteStatisticsArgs&);   \
  template void SumRows<T>(Stream&, const SumRowsArgs&);                   \
  template void RecordLoads<T>(Stream&, const RecordLoadsArgs&);           \
  template void CountPairs<T>(Stream&, const CountPairsArgs&);             \
  template void Balance<T>(Stream&, const BalanceArgs&);                   \
  template void NumberTokens<T>(Stream&, const NumberTokensArgs&);         \
  template void OrderTokens<T>(Stream&, const OrderTokensArgs&);           \
  template void KeptIds<T>(Stream&, const KeptIdsArgs&);                   \
  template void AssignRows<T>(Stream&, const AssignRowsArgs&);             \
  template void AssignSlots<T>(Stream&, const AssignSlotsArgs&);           \
  template void GatherRows<T>(Stream&, const GatherRowsArgs&);             \
  template void CombineRows<T>(Stream&, const CombineRowsArgs&);           \
  template void GroupedMatmul<T>(Stream&, const GroupedMatmulArgs&);       \
  template void GroupedBias<T>(Stream&, const GroupedBiasArgs&);           \
  template void GroupedBiasGrad<T>(Stream&, const GroupedBiasGradArgs&);   \
  template void GroupedBiasGates<T>(Stream&, const GroupedBiasGatesArgs&); \
  template void ExpertActForward<T>(Stream&, const ExpertActForwardArgs&); \
  template void ExpertActBackward<T>(Stream&, const ExpertActBackwardArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

}  // namespace delink::cuda
