#include "framework/step/time/network_time.h"

#include <algorithm>
#include <map>

#include "framework/base/at.h"
#include "framework/base/rate.h"

namespace delink {
namespace {

// Of a rank's line to other nodes.
double RateBetween(const Network& network) {
  const double rate = network.between.bytes_per_second;
  return std::min(rate, rate * static_cast<double>(network.links) /
                            static_cast<double>(network.ranks_per_node));
}

// In which each rank passes on `bytes` to its neighbour in n - 1 steps.
NetworkTime Ring(const Network& network, double bytes,
                 const GroupOnNodes& group) {
  const auto steps = static_cast<double>(group.ranks - 1);
  const double passes =
      group.nodes > 1 ? std::min(static_cast<double>(group.nodes), steps) : 0;
  NetworkTime time;
  if (group.most > 1) {
    time.inside = Over(bytes, network.inside.bytes_per_second);
  }
  if (group.nodes > 1) {
    time.between =
        Over(bytes / static_cast<double>(group.least), RateBetween(network));
  }
  time.time = std::max(time.inside, time.between) +
              passes * network.between.latency +
              (steps - passes) * network.inside.latency;
  return time;
}

// Of messages that are all posted at once.
NetworkTime AtOnce(const Network& network, double inside, double between,
                   bool crosses) {
  NetworkTime time{
      .inside = Over(inside, network.inside.bytes_per_second),
      .between = crosses ? Over(between, RateBetween(network)) : 0};
  time.time = std::max(time.inside, time.between) +
              (crosses ? network.between.latency : network.inside.latency);
  return time;
}

}  // namespace

GroupOnNodes OnNodes(const std::vector<int>& group,
                     const std::vector<int>& nodes) {
  std::map<int, int64_t> count;
  GroupOnNodes on{.ranks = std::ssize(group)};
  for (const int rank : group) ++count[At(nodes, rank)];
  on.nodes = std::ssize(count);
  on.least = on.ranks;
  for (const auto& [node, ranks] : count) {
    on.most = std::max(on.most, ranks);
    on.least = std::min(on.least, ranks);
  }
  return on;
}

NetworkTime TimeOf(const Network& network, ExchangeKind kind, int64_t bytes,
                   const GroupOnNodes& group) {
  if (group.ranks <= 1) return {};
  const auto all = static_cast<double>(bytes);
  const double part = all / static_cast<double>(group.ranks);
  const double passed = all - part;
  const bool crosses = group.nodes > 1;
  switch (kind) {
    case ExchangeKind::kReduceScatter:
    case ExchangeKind::kAllGather:
      return Ring(network, passed, group);
    case ExchangeKind::kAllReduce: {
      const NetworkTime one = Ring(network, passed, group);
      return {2 * one.time, 2 * one.inside, 2 * one.between};
    }
    case ExchangeKind::kBroadcast:
      return Ring(network, all, group);
    case ExchangeKind::kGather:
    case ExchangeKind::kAllToAll:
      return AtOnce(network, part * static_cast<double>(group.most - 1),
                    part * static_cast<double>(group.ranks - group.least),
                    crosses);
    case ExchangeKind::kSend:
      break;
  }
  return AtOnce(network, crosses ? 0 : all, all, crosses);
}

}  // namespace delink
