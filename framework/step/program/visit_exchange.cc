#include "framework/step/program/visit_exchange.h"

#include "absl/strings/str_cat.h"

namespace delink {

int RanksOf(const Mesh& mesh, const VisitExchange& exchange) {
  switch (exchange.kind) {
    case VisitExchange::Kind::kAllToNodes:
      return mesh.expert_nodes;
    case VisitExchange::Kind::kAllToNode:
      return mesh.expert / mesh.expert_nodes;
    default:
      return mesh.along(exchange.axis);
  }
}

std::string ToString(const VisitExchange& exchange) {
  const char* kind = "maximum";
  switch (exchange.kind) {
    case VisitExchange::Kind::kGather:
      kind = "gather";
      break;
    case VisitExchange::Kind::kScatter:
      kind = "reduce-scatter";
      break;
    case VisitExchange::Kind::kAllToAll:
      kind = "all-to-all";
      break;
    case VisitExchange::Kind::kAllToNodes:
      kind = "all-to-all of nodes";
      break;
    case VisitExchange::Kind::kAllToNode:
      kind = "all-to-all within a node";
      break;
    case VisitExchange::Kind::kSum:
      kind = "sum";
      break;
    case VisitExchange::Kind::kMax:
      break;
  }
  return absl::StrCat(kind, " over ", ToString(exchange.axis));
}

}  // namespace delink
