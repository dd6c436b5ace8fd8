#include "tools/bench/network_rates.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/dtype.h"
#include "tools/bench/timing.h"

namespace delink::bench {
namespace {

using offload::NetworkRates;

constexpr double kShortest = 1e-9;  // seconds, of a clock's step

// The median of what `exchange` takes on this rank, after a first one. All
// ranks begin together.
template <typename Exchange>
absl::StatusOr<double> SecondsOf(Communicator& group, int times,
                                 const Exchange& exchange) {
  std::vector<double> seconds;
  for (int i = 0; i <= times; ++i) {
    double ready = 0;
    DELINK_RETURN_IF_ERROR(
        group.AllReduce(&ready, 1, DType::kF64, ReduceOp::kSum)->Wait());
    const auto begin = std::chrono::steady_clock::now();
    DELINK_RETURN_IF_ERROR(exchange()->Wait());
    if (i > 0) seconds.push_back(Since(begin));
  }
  return Summarise(std::move(seconds)).median;
}

// Of a rank's line to the next of `group`, which has several.
absl::StatusOr<NetworkRates> MeasureRing(Communicator& group, bool quick) {
  const auto ranks = static_cast<int64_t>(group.size());
  const auto steps = static_cast<double>(ranks - 1);
  const int64_t count = (quick ? 1 << 16 : 1 << 22) / ranks;  // of a chunk
  std::vector<float> all(static_cast<size_t>(count * ranks), 1);
  std::vector<float> one(static_cast<size_t>(count));
  double sum = 0;
  NetworkRates rates;
  DELINK_ASSIGN_OR_RETURN(
      const double little, SecondsOf(group, quick ? 20 : 400, [&] {
        return group.AllReduce(&sum, 1, DType::kF64, ReduceOp::kSum);
      }));
  rates.latency = little / (2 * steps);
  const int times = quick ? 3 : 15;
  DELINK_ASSIGN_OR_RETURN(const double gather, SecondsOf(group, times, [&] {
                            return group.AllGather(all.data(), count,
                                                   DType::kF32);
                          }));
  DELINK_ASSIGN_OR_RETURN(const double reduce, SecondsOf(group, times, [&] {
                            return group.ReduceScatter(all.data(), one.data(),
                                                       count, DType::kF32,
                                                       ReduceOp::kSum);
                          }));
  const double bytes =
      2 * steps * static_cast<double>(count * SizeOf(DType::kF32));
  // On a busy machine the little exchange may have taken longer.
  const double all_seconds = gather + reduce;
  rates.bytes_per_s = bytes / std::max({all_seconds - 2 * steps * rates.latency,
                                        all_seconds / 2, kShortest});
  return rates;
}

// This rank's place among those of its node.
int PlaceIn(const std::vector<int>& nodes, int rank) {
  return static_cast<int>(
      std::count(nodes.begin(), nodes.begin() + rank, At(nodes, rank)));
}

}  // namespace

absl::StatusOr<MeasuredNetwork> MeasureNetwork(Communicator& world,
                                               const std::vector<int>& nodes,
                                               bool quick) {
  const int rank = world.rank();
  const int place = PlaceIn(nodes, rank);
  MeasuredNetwork network;
  DELINK_ASSIGN_OR_RETURN(const auto inside,
                          world.Split(At(nodes, rank), rank));
  DELINK_ASSIGN_OR_RETURN(const auto between, world.Split(place, rank));
  if (inside->size() > 1) {
    DELINK_ASSIGN_OR_RETURN(network.inside, MeasureRing(*inside, quick));
  }
  DELINK_RETURN_IF_ERROR(Barrier(world));
  if (between->size() == 1) return network;
  if (place == 0) {
    DELINK_ASSIGN_OR_RETURN(network.between, MeasureRing(*between, quick));
  }
  DELINK_RETURN_IF_ERROR(Barrier(world));
  DELINK_ASSIGN_OR_RETURN(const NetworkRates together,
                          MeasureRing(*between, quick));
  const double links = static_cast<double>(inside->size()) *
                       together.bytes_per_s /
                       std::max(network.between.bytes_per_s, 1.0);
  network.between.links = std::max<int64_t>(1, std::llround(links));
  return network;
}

}  // namespace delink::bench
