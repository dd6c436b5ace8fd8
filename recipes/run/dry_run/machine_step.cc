#include "recipes/run/dry_run/machine_step.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/format_bytes.h"
#include "framework/base/rate.h"
#include "framework/base/status_macros.h"
#include "framework/step/time/step_time.h"
#include "layers/kernels/cpu/threads.h"

namespace delink {
namespace {

using Among = StepExchange::Among;

constexpr double kDay = 86400, kHour = 3600, kKilo = 1e3;

// What an instruction does on its own beside products, in words.
const char* OwnWork(const Instruction& at) {
  if (IsVisit(at)) return "other kernels";
  if (at.op == Op::kUpdate) {
    return at.lane == Lane::kHost ? "updates on the host"
                                  : "updates on the device";
  }
  if (at.op == Op::kSquares || at.op == Op::kNorm) return "norms";
  return "copies between host and device";
}

const char* NameOf(const StepExchange& exchange) {
  switch (exchange.among) {
    case Among::kWorld:
      return "sums of the norm";
    case Among::kNeighbour:
      return "transfers of the pipeline";
    case Among::kTensor:
      return exchange.what == "updates" ? "exchanges of updates"
                                        : "tensor exchanges";
    case Among::kContext:
      return "context exchanges";
    case Among::kExpert:
    case Among::kExpertNodes:
    case Among::kExpertNode:
      return "expert exchanges";
    default:
      return exchange.what == "weights" ? "gathers of weights"
                                        : "reductions of gradients";
  }
}

// Whether kernels keep all cores of a node busy, so that the lanes of a rank on
// the CPU take turns.
bool TakeTurns(const PlannedMachine& planned) {
  const offload::MachineRates& machine = planned.machine;
  return machine.device.kind == "cpu" &&
         planned.ranks_per_node * cpu::MaxThreads() >= machine.threads;
}

// Of the columns that are simulated: all or, where ranks of a pipeline stage
// have equal costs, so that columns take equal times, the first. A trace has
// all.
class StageCosts {
 public:
  explicit StageCosts(const SimulatedStage& stage)
      : stage_(stage),
        network_(NetworkOf(stage.machine)),
        turns_(TakeTurns(stage.machine)),
        columns_(ColumnsOf(stage.plan, stage.layout.mesh())) {
    if (stage.trace == nullptr && ColumnsAreAlike()) columns_.resize(1);
    costs_.resize(stage.nodes.size());
    for (const Column& column : columns_) {
      for (const RankProgram& rank : column) {
        for (size_t i = 0; i < rank.program->instructions.size(); ++i) {
          At(costs_, rank.rank).push_back(CostOf(rank.rank, i));
        }
      }
    }
  }

  const std::vector<Column>& columns() const { return columns_; }
  Cost Of(int rank, int32_t index) const { return At(At(costs_, rank), index); }

  TimeParts PartsOf(int rank, int32_t index) {
    const offload::WorkSeconds own = OwnSeconds(rank, index);
    TimeParts parts;
    if (own.products > 0) parts.emplace_back("products", own.products);
    parts.emplace_back(OwnWork(InstructionOf(rank, index)), own.others);
    ForEachExchange(
        rank, index,
        [&](const StepExchange& of, bool between, const NetworkTime& time) {
          parts.emplace_back(
              absl::StrCat(NameOf(of),
                           between ? " between nodes" : " within a node"),
              time.time);
        });
    return parts;
  }

 private:
  bool ColumnsAreAlike() {
    const Column& first = columns_.front();
    for (size_t stage = 0; stage < first.size(); ++stage) {
      // One instruction for each kind of group.
      std::map<std::tuple<Among, int32_t, int>, size_t> kinds;
      const Program& program = *first[stage].program;
      const PipelineStagePlan& plan = At(stage_.plan.stages, stage);
      for (size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& at = program.instructions[i];
        for (const StepExchange& of : plan.exchanged[i]) {
          kinds.try_emplace(
              {of.among, at.slab, PartnerIn(program, at, of.among)}, i);
        }
      }
      for (const Column& column : columns_) {
        if (!AreAlike(column[stage].rank, first[stage].rank, kinds)) {
          return false;
        }
      }
    }
    return true;
  }
  template <typename Kinds>
  bool AreAlike(int rank, int other, const Kinds& kinds) {
    const offload::MachineRates& machine = stage_.machine.machine;
    if (machine.SpeedOf(At(stage_.nodes, rank)) !=
        machine.SpeedOf(At(stage_.nodes, other))) {
      return false;
    }
    const Program& program = PlanOf(rank).program;
    return std::ranges::all_of(kinds, [&](const auto& kind) {
      const Instruction& at = program.instructions[kind.second];
      const Among among = std::get<Among>(kind.first);
      return GroupOf(rank, program, at, among) ==
             GroupOf(other, program, at, among);
    });
  }
  // The pipeline stage at the other end; -1: it is no transfer.
  static int PartnerIn(const Program& program, const Instruction& at,
                       Among among) {
    return among == Among::kNeighbour ? PartnerOf(program, at) : -1;
  }

  const PipelineStagePlan& PlanOf(int rank) const {
    const MeshPlace place = stage_.layout.mesh().PlaceOf(rank);
    return At(stage_.plan.stages, place[Axis::kPipeline]);
  }
  const Instruction& InstructionOf(int rank, size_t index) const {
    return At(PlanOf(rank).program.instructions, index);
  }

  offload::WorkSeconds OwnSeconds(int rank, size_t index) const {
    const double speed = stage_.machine.machine.SpeedOf(At(stage_.nodes, rank));
    const offload::WorkSeconds& own = At(PlanOf(rank).seconds, index);
    return {.products = own.products / speed, .others = own.others / speed};
  }

  // Calls visit(exchange, whether it is between nodes, time).
  template <typename Visit>
  void ForEachExchange(int rank, size_t index, const Visit& visit) {
    const PipelineStagePlan& plan = PlanOf(rank);
    const Instruction& at = InstructionOf(rank, index);
    for (const StepExchange& of : At(plan.exchanged, index)) {
      const GroupOnNodes& group = GroupOf(rank, plan.program, at, of.among);
      visit(of, group.nodes > 1, TimeOf(network_, of.kind, of.bytes, group));
    }
  }

  Cost CostOf(int rank, size_t index) {
    const Instruction& at = InstructionOf(rank, index);
    const double own = OwnSeconds(rank, index).all();
    Cost cost{.time = own,
              .busy = IsOverBus(at.lane) ? own : 0,
              .cores = turns_ ? own : 0};
    ForEachExchange(rank, index,
                    [&](const StepExchange&, bool, const NetworkTime& time) {
                      cost.time += time.time;
                      if (at.op == Op::kRecv)
                        return;  // the line is the sender's
                      cost.inside += time.inside;
                      cost.between += time.between;
                    });
    return cost;
  }

  // Of the ranks that exchange with `rank`.
  const GroupOnNodes& GroupOf(int rank, const Program& program,
                              const Instruction& at, Among among) {
    const Layout& layout = stage_.layout;
    const bool of_slab = among == Among::kSlab || among == Among::kGather ||
                         among == Among::kReplicas;
    const std::vector<int>* slab = nullptr;
    int64_t replicas = 0;
    if (of_slab) {
      const LocalSlab& local =
          At(layout.local_slabs(), layout.LocalSlabOf(at.slab, rank));
      slab = local.group.get();
      replicas = local.replicas;
    }
    const bool shared = among == Among::kWorld || among == Among::kSlab;
    const auto [known, fresh] =
        groups_.try_emplace({among, slab, replicas, shared ? -1 : rank,
                             PartnerIn(program, at, among)});
    if (fresh) {
      known->second =
          OnNodes(RanksOf(layout, rank, program, at, among), stage_.nodes);
    }
    return known->second;
  }

  const SimulatedStage& stage_;
  const Network network_;
  const bool turns_;
  std::vector<Column> columns_;
  std::map<std::tuple<Among, const std::vector<int>*, int64_t, int, int>,
           GroupOnNodes>
      groups_;
  std::vector<std::vector<Cost>> costs_;  // by rank, of these columns
};

// One of each kind of heaviest ranks.
std::vector<TierBytes> TiersOf(const PipelinePlan& plan) {
  std::vector<TierBytes> tiers;
  for (const PipelineStagePlan& stage : plan.stages) {
    const TierBytes of{.rank = stage.rank,
                       .device = stage.account.total(),
                       .host = stage.account.host};
    const auto text = [](const TierBytes& bytes) {
      return FormatBytes(bytes.device) + FormatBytes(bytes.host);
    };
    const bool known = std::ranges::any_of(
        tiers, [&](const TierBytes& other) { return text(other) == text(of); });
    if (!known) tiers.push_back(of);
  }
  return tiers;
}

void SetSaves(const SimulatedStage& stage, bool switches, MachineStep& step) {
  const PlannedMachine& planned = stage.machine;
  const offload::MachineRates& machine = planned.machine;
  int64_t saved = 0;
  for (const PipelineStagePlan& of : stage.plan.stages) {
    saved = std::max(saved, of.saved_bytes);
    if (switches) {
      step.switch_bytes = std::max(step.switch_bytes, of.switched_bytes);
    }
  }
  step.save_bytes = saved * planned.ranks_per_node;
  step.save_seconds =
      Over(static_cast<double>(step.save_bytes), machine.disk.write);
  const int64_t ranks = std::ssize(stage.nodes);
  if (ranks == 1) return;
  const bool crosses = stage.nodes.back() != stage.nodes.front();
  const GroupOnNodes pair{.ranks = 2,
                          .nodes = crosses ? 2 : 1,
                          .most = crosses ? 1 : 2,
                          .least = crosses ? 1 : 2};
  step.switch_seconds =
      TimeOf(NetworkOf(planned), ExchangeKind::kSend, step.switch_bytes, pair)
          .time;
}

}  // namespace

Network NetworkOf(const PlannedMachine& planned) {
  const offload::MachineRates& machine = planned.machine;
  return {.inside = {machine.inside.latency, machine.inside.bytes_per_s},
          .between = {machine.between.latency, machine.between.bytes_per_s},
          .links = std::max<int64_t>(1, machine.between.links),
          .ranks_per_node = planned.ranks_per_node};
}

MachineUse UseOf(const PlannedMachine& planned, double seconds) {
  const offload::MachineRates& machine = planned.machine;
  const bool cpu = machine.device.kind == "cpu";
  const auto devices =
      static_cast<double>(cpu ? (planned.ranks + planned.ranks_per_node - 1) /
                                    planned.ranks_per_node
                              : planned.ranks);
  const double hours = devices * seconds / kHour;
  return {.days = seconds / kDay,
          .energy_kwh = machine.tier.watts.value_or(0) * hours / kKilo,
          .cost = machine.tier.price.value_or(0) * hours};
}

absl::StatusOr<MachineStep> SimulateStep(const SimulatedStage& stage,
                                         bool switches) {
  StageCosts costs(stage);
  const std::vector<Column>& columns = costs.columns();
  DELINK_ASSIGN_OR_RETURN(const StepTime time,
                          TimeStep(
                              columns,
                              [&costs](const RankProgram& rank, int32_t index) {
                                return costs.Of(rank.rank, index);
                              },
                              stage.drains));
  MachineStep step{.seconds = time.seconds,
                   .path = FindCriticalPath(
                       columns, time,
                       [&costs](const RankProgram& rank, int32_t index) {
                         return costs.PartsOf(rank.rank, index);
                       }),
                   .lanes = UseOfLanes(*columns[0][0].program, time,
                                       /*rank=*/0, /*columns=*/1),
                   .tiers = TiersOf(stage.plan)};
  SetSaves(stage, switches, step);
  if (stage.trace != nullptr) {
    std::vector<const std::vector<Trace::Entry>*> entries;
    for (const PipelineStagePlan& of : stage.plan.stages) {
      entries.push_back(&of.entries);
    }
    stage.trace->Add(columns, time.times, entries, stage.begin + 1);
  }
  return step;
}

}  // namespace delink
