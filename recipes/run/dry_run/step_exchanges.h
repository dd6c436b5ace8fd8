// What each instruction of a step exchanges, and between which ranks. Plans
// count bytes and seconds from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/plan/measure.h"
#include "framework/step/program/instruction.h"
#include "framework/step/time/network_time.h"
#include "framework/step/time/step_time.h"
#include "recipes/run/dry_run/imagined_stage.h"

namespace delink {

struct StepExchange {
  // The ranks that exchange, seen from one of them.
  enum class Among : uint8_t {
    kWorld,
    kNeighbour,  // the stage at the other end of a transfer
    kSlab,       // LocalSlab::group
    kGather,     // Layout::GatherGroup
    kReplicas,   // Layout::ReplicaGroup
    kTensor,     // on the same visit
    kContext,
    kExpert,
    kExpertNodes,  // VisitGroup::Among
    kExpertNode
  };
  // "gradients", "weights", "boundaries"; "activations" within visits,
  // "updates" within updates; empty: not listed in a plan.
  std::string what;
  std::string name;  // of the kind: "all-reduce max"
  ExchangeKind kind = ExchangeKind::kAllReduce;
  Among among = Among::kWorld;
  int64_t bytes = 0;  // network_time.h
  int64_t sent = 0;   // by this rank (step_time.h)
};

// In order, on the rank of `imagined`.
std::vector<StepExchange> ExchangesOf(ImaginedStage& imagined,
                                      const std::vector<LayerPlan>& layers,
                                      const Program& program,
                                      const Instruction& at);
Sent SentIn(const std::vector<StepExchange>& exchanges);
// In the middle of a visit or an update; `what` as in StepExchange.
StepExchange WithinVisit(const char* what, const VisitExchange& of,
                         const Mesh& mesh);

// The ranks that exchange with `rank`, with it. `at`: of the instruction.
std::vector<int> RanksOf(const Layout& layout, int rank, const Program& program,
                         const Instruction& at, StepExchange::Among among);
// The same of WithinVisit.
std::vector<int> RanksOfVisit(const Mesh& mesh, int rank,
                              StepExchange::Among among);

}  // namespace delink
