// Exchanges on a network of nodes, reckoned by hand.
#include "framework/step/time/network_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace delink::network_time_test {
namespace {

using Kind = ExchangeKind;

constexpr Kind kKinds[] = {
    Kind::kReduceScatter, Kind::kAllGather, Kind::kAllReduce, Kind::kBroadcast,
    Kind::kGather,        Kind::kAllToAll,  Kind::kSend};

// Four ranks a node share two links of 4 bytes/s: 2 bytes/s each.
constexpr Network kNetwork = {.inside = {.latency = 1, .bytes_per_second = 10},
                              .between = {.latency = 7, .bytes_per_second = 4},
                              .links = 2,
                              .ranks_per_node = 4};
constexpr GroupOnNodes kOneNode = {
    .ranks = 4, .nodes = 1, .most = 4, .least = 4};
// One rank on each of three nodes, and two on each.
constexpr GroupOnNodes kApart = {.ranks = 3, .nodes = 3};
constexpr GroupOnNodes kPairs = {.ranks = 6, .nodes = 3, .most = 2, .least = 2};

struct Row {
  const char* name;
  Kind kind;
  int64_t bytes;
  GroupOnNodes group;
  NetworkTime time;
};

TEST(NetworkTime, FormulasAreThoseOfTheHeader) {
  const Row rows[] = {
      {"ring in a node", Kind::kAllGather, 400, kOneNode, {30 + 3, 30, 0}},
      {"the same sums", Kind::kReduceScatter, 400, kOneNode, {33, 30, 0}},
      {"both", Kind::kAllReduce, 400, kOneNode, {66, 60, 0}},
      {"all of it", Kind::kBroadcast, 400, kOneNode, {40 + 3, 40, 0}},
      {"to one", Kind::kGather, 400, kOneNode, {30 + 1, 30, 0}},
      {"to all", Kind::kAllToAll, 400, kOneNode, {30 + 1, 30, 0}},
      {"of nodes", Kind::kAllGather, 300, kApart, {100 + 2 * 7, 0, 100}},
      {"of nodes", Kind::kAllToAll, 300, kApart, {100 + 7, 0, 100}},
      // 500 bytes pass each rank; two of a node share the way out: 125 s. Three
      // of five steps leave a node.
      {"pairs", Kind::kAllGather, 600, kPairs, {125 + 3 * 7 + 2, 50, 125}},
      {"pairs", Kind::kAllReduce, 600, kPairs, {296, 100, 250}},
      // 100 to the other of the node, 400 to four beyond.
      {"pairs", Kind::kAllToAll, 600, kPairs, {200 + 7, 10, 200}},
      {"pairs", Kind::kBroadcast, 600, kPairs, {150 + 23, 60, 150}},
      {"send", Kind::kSend, 50, {.ranks = 2, .most = 2, .least = 2}, {6, 5, 0}},
      {"send", Kind::kSend, 50, {.ranks = 2, .nodes = 2}, {25 + 7, 0, 25}},
      {"alone", Kind::kAllReduce, 50, {}, {0, 0, 0}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const NetworkTime time = TimeOf(kNetwork, row.kind, row.bytes, row.group);
    EXPECT_DOUBLE_EQ(time.time, row.time.time);
    EXPECT_DOUBLE_EQ(time.inside, row.time.inside);
    EXPECT_DOUBLE_EQ(time.between, row.time.between);
  }
}

double Seconds(const Network& network, Kind kind, const GroupOnNodes& group) {
  return TimeOf(network, kind, 1000, group).time;
}

TEST(NetworkTime, MovesAsTheNetworkDoes) {
  for (const Kind kind : kKinds) {
    for (const GroupOnNodes& group : {kOneNode, kApart, kPairs}) {
      const double before = Seconds(kNetwork, kind, group);
      Network half = kNetwork;
      half.between.bytes_per_second /= 2;
      Network later = kNetwork;
      later.between.latency *= 2;
      Network links = kNetwork;
      links.links = 4;
      Network crowd = kNetwork;
      crowd.ranks_per_node = 8;
      if (group == kOneNode) {
        for (const Network& other : {half, later, links, crowd}) {
          EXPECT_EQ(Seconds(other, kind, group), before);
        }
      } else {
        EXPECT_GT(Seconds(half, kind, group), before);
        EXPECT_GT(Seconds(later, kind, group), before);
        EXPECT_LT(Seconds(links, kind, group), before);
        EXPECT_GT(Seconds(crowd, kind, group), before);
        // A rank never has more than a link.
        Network more = links;
        more.links = 8;
        EXPECT_EQ(Seconds(more, kind, group), Seconds(links, kind, group));
      }
      EXPECT_GT(TimeOf(kNetwork, kind, 2000, group).time, before);
    }
  }
}

TEST(NetworkTime, CountsTheRanksOfNodes) {
  const std::vector<int> nodes = {0, 0, 0, 1, 1, 2};
  EXPECT_EQ(OnNodes({0, 1, 2, 4, 5}, nodes),
            (GroupOnNodes{.ranks = 5, .nodes = 3, .most = 3, .least = 1}));
  EXPECT_EQ(OnNodes({3, 4}, nodes),
            (GroupOnNodes{.ranks = 2, .nodes = 1, .most = 2, .least = 2}));
}

}  // namespace
}  // namespace delink::network_time_test
