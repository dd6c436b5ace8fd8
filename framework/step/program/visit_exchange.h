// What the ranks that work on the same visit exchange in the middle of it
// (framework/autograd/visit_group.h). Exchanges are listed when a layer is
// measured, are part of a ProgramShape, and are named in messages about waits.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/autograd/visit_memory.h"
#include "framework/module/mesh.h"

namespace delink {

// The axes along which ranks work on the same visit.
inline constexpr Axis kVisitAxes[] = {Axis::kTensor, Axis::kContext,
                                      Axis::kExpert};

struct VisitExchange {
  enum class Kind : uint8_t {
    kGather,
    kScatter,
    kAllToAll,
    kAllToNodes,  // VisitGroup::Among
    kAllToNode,
    kSum,
    kMax
  };
  Axis axis = Axis::kTensor;  // one of kVisitAxes
  Kind kind = Kind::kGather;
  int64_t bytes = 0;  // of a rank's buffer: of all ranks' parts, where it has
                      // several
  friend bool operator==(const VisitExchange&, const VisitExchange&) = default;
};

// How many ranks exchange.
int RanksOf(const Mesh& mesh, const VisitExchange& exchange);

// "gather over tensor"
std::string ToString(const VisitExchange& exchange);

// A layer's exchanges, by Phase, in order. The same on all ranks of its stage.
using VisitExchanges = std::array<std::vector<VisitExchange>, kPhases>;

}  // namespace delink
