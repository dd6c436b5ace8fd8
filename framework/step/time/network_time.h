// How long an exchange between ranks takes on a network of nodes, by formulas
// alone: n ranks on k nodes exchange B bytes; m of them are on the same node,
// the most or the least of a node, whichever takes longer.
//
// A rank has one outgoing line to ranks of its node, of r_in bytes/s. The R
// ranks of a node share its L links to other nodes, of r bytes/s each; all of
// them exchange at the same time, each in its own group, so a rank's outgoing
// line to other nodes has r_out = min(r, L r / R). Both lines work at once. A
// message takes a latency, a_in or a_out, and its bytes over the line's rate
// (Hockney 1994).
//
//   exchange          seconds, bytes: the longer of both lines
//   reduce-scatter,   V / r_in and (V / m) / r_out, V = B (n - 1) / n
//   all-gather          a ring: each rank sends n - 1 pieces to its neighbour
//                       (Patarasuk, Yuan 2009). It leaves each node once; its m
//                       ranks there share that traffic
//   all-reduce        both, one after the other
//   broadcast         as an all-gather with V = B: a ring, in small pieces
//   gather to one     as all-to-all, on the rank that receives
//   all-to-all        B (m - 1) / n / r_in and B (n - m) / n / r_out; all
//                       messages are posted at once
//   send              B over the line of the two
//
// Latency: a ring has n - 1 steps, of which c = min(k, n - 1) (none if k = 1)
// pass to another node, and takes c a_out + (n - 1 - c) a_in; an all-reduce
// twice that. All others take one, a_out if k > 1. An exchange that stays in a
// node uses no line between nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/comm/link.h"

namespace delink {

struct Network {
  Link inside;                 // from a rank to others of its node
  Link between;                // of one link between nodes
  int64_t links = 1;           // of a node
  int64_t ranks_per_node = 1;  // that use them at the same time
};

// How the ranks of a group lie on nodes.
struct GroupOnNodes {
  int64_t ranks = 1;
  int64_t nodes = 1;
  int64_t most = 1, least = 1;  // on one of these
  friend bool operator==(const GroupOnNodes&, const GroupOnNodes&) = default;
};
// `nodes`: of each rank of the world.
GroupOnNodes OnNodes(const std::vector<int>& group,
                     const std::vector<int>& nodes);

enum class ExchangeKind : uint8_t {
  kReduceScatter,
  kAllGather,
  kAllReduce,
  kBroadcast,
  kGather,
  kAllToAll,
  kSend
};

// Seconds: of the exchange, and for which a rank's two lines are busy.
struct NetworkTime {
  double time = 0;
  double inside = 0, between = 0;
};
// `bytes`: of a rank's buffer, with the parts of all ranks where it has several
// (visit_exchange.h).
NetworkTime TimeOf(const Network& network, ExchangeKind kind, int64_t bytes,
                   const GroupOnNodes& group);

}  // namespace delink
