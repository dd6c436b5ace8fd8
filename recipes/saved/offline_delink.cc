#include "recipes/saved/offline_delink.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint_values.h"
#include "framework/comm/self_communicator.h"
#include "framework/sharing/delinked_values.h"
#include "framework/sharing/grow.h"
#include "framework/sharing/resolve.h"
#include "framework/sharing/state_change.h"
#include "framework/step/plan/memory.h"
#include "recipes/record/environment.h"
#include "recipes/record/progress.h"
#include "recipes/run/position/skip_watch.h"
#include "recipes/run/stage/make_optimizer.h"
#include "recipes/saved/saved_model.h"

namespace delink {
namespace {

// The planned change of a checkpoint.
struct Change {
  SharingMap sharing;
  StatePolicy state = StatePolicy::kScale;
  Growth growth;
  size_t stage = 0;  // of the recipe
};

// The recipe's stage that the checkpoint is of.
size_t StageOf(const SavedModel& saved) {
  return static_cast<size_t>(saved.run().stage_index);
}

// The stage that follows it; null when it is the last.
const Stage* NextStage(const SavedModel& saved) {
  const std::vector<Stage>& stages = saved.recipe().stages;
  const size_t next = StageOf(saved) + 1;
  return next < stages.size() ? &stages[next] : nullptr;
}

// Whether two maps visit the same blocks and give them the same leaders.
bool SameSharing(const SavedModel& saved, const SharingMap& a,
                 const SharingMap& b) {
  const std::vector<int> visited = a.VisitedOf(saved.blocks());
  if (visited != b.VisitedOf(saved.blocks())) return false;
  for (const std::string& part : PartsOf(saved.registry(), saved.blocks())) {
    for (const int block : visited) {
      if (a.Leader(part, block) != b.Leader(part, block)) return false;
    }
  }
  return true;
}

// As SharingMap::visited.
absl::StatusOr<std::vector<int>> VisitedAfter(
    const OfflineDelinkOptions& options, const SavedModel& saved) {
  const Recipe& recipe = saved.recipe();
  const Stage* const next = NextStage(saved);
  if (!options.depth) {
    return next != nullptr ? recipe.Visited(StageOf(saved) + 1)
                           : saved.sharing().visited;
  }
  if (*options.depth > saved.blocks()) {
    return absl::InvalidArgumentError(
        absl::StrCat(saved.path(), ": the model has ", saved.blocks(),
                     " blocks, fewer than --depth ", *options.depth));
  }
  const Stage& as = next != nullptr ? *next : recipe.stages[StageOf(saved)];
  return VisitedBlocks(as.visit, *options.depth, saved.blocks());
}

absl::Status CheckChange(const OfflineDelinkOptions& options,
                         const SavedModel& saved, const ShareSpec& share,
                         const Change& change) {
  const int blocks = saved.blocks();
  const absl::Status cuts = GrowthOf(saved.registry(), blocks, saved.sharing(),
                                     change.sharing, change.growth)
                                .status();
  if (!cuts.ok()) {
    return absl::Status(cuts.code(),
                        absl::StrCat(saved.path(), ": under '", ToString(share),
                                     "' ", cuts.message()));
  }
  const size_t depth = change.sharing.VisitedOf(blocks).size();
  if (options.grow && depth == saved.sharing().VisitedOf(blocks).size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(saved.path(), ": has ", depth,
                     " blocks already, so none are added; leave --grow out, or "
                     "give a --depth"));
  }
  if (SameSharing(saved, saved.sharing(), change.sharing)) {
    return absl::InvalidArgumentError(absl::StrCat(
        saved.path(), ": there is nothing to cut: its sharing is already '",
        ToString(share), "'; give another --share or checkpoint"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Change> PlanChange(const OfflineDelinkOptions& options,
                                  const SavedModel& saved) {
  const Stage* const next = NextStage(saved);
  const std::vector<Stage>& stages = saved.recipe().stages;
  const ShareSpec share = options.share.value_or(
      next != nullptr ? next->share : ShareSpec{.every = SharePolicy{}});
  Change change{.state = options.state.value_or(
                    next != nullptr ? next->state : StatePolicy::kScale),
                .stage = StageOf(saved)};
  if (change.state == StatePolicy::kCalibrated) {
    return absl::InvalidArgumentError(absl::StrCat(
        saved.path(), ": state 'calibrated'",
        options.state.has_value() ? "" : ", as the recipe's next stage says,",
        " needs gradients, which only a run has: give --state scale or reset, "
        "or resume the run and let it switch"));
  }
  std::optional<GrowPolicy> grow = options.grow;
  if (!grow && next != nullptr) grow = next->grow;
  change.growth = {.policy = grow.value_or(GrowPolicy::kCopy),
                   .share = stages[StageOf(saved)].share,
                   .seed = static_cast<uint64_t>(saved.recipe().run.seed)};
  DELINK_ASSIGN_OR_RETURN(std::vector<int> visited,
                          VisitedAfter(options, saved));
  DELINK_ASSIGN_OR_RETURN(
      change.sharing, ResolveSharing(share, saved.registry(), saved.blocks(),
                                     std::move(visited)));
  DELINK_RETURN_IF_ERROR(CheckChange(options, saved, share, change));
  for (size_t i = change.stage + 1; i < stages.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(
        const SharingMap planned,
        ResolveSharing(stages[i].share, saved.registry(), saved.blocks(),
                       saved.recipe().Visited(i)));
    if (!SameSharing(saved, planned, change.sharing)) continue;
    change.stage = i;
    break;
  }
  return change;
}

// Resets the measurements of a stage.
void BeginStage(const Recipe& recipe, SavedRun& run) {
  run.stage_begin_step = run.step;
  run.stage_begin_samples = run.samples;
  run.stage_losses.clear();
  run.stage_probes.clear();
  run.validation.clear();
  SkipWatch skips(recipe.optimizer.skip, run.skipped);
  skips.BeginStage();
  run.skipped = skips.Saved();
}

absl::StatusOr<std::unique_ptr<ParamStore>> StoreOf(
    Device& device, const SavedModel& saved, const SharingMap& sharing,
    const std::vector<StateSpec>& states) {
  return ParamStore::Create(
      device, Layout::Create(saved.registry(), saved.blocks(), sharing, {}), 0,
      {.gradients = false, .states = states});
}

// The number of updates of each slab, after checking that the checkpoint is
// complete and fits the model. Without states, updates are not counted.
absl::StatusOr<std::vector<int64_t>> CheckAll(
    CheckpointValues& saved, const Layout& layout,
    const std::vector<StateSpec>& states) {
  std::vector<int64_t> updates(layout.slabs().size(), 0);
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty()) continue;
    DELINK_RETURN_IF_ERROR(saved.Check({}, tensor));
    for (const StateSpec& spec : states) {
      const Field field{Field::Kind::kState, spec.name};
      if (saved.Has(field, tensor).empty()) continue;
      DELINK_RETURN_IF_ERROR(saved.Check(field, tensor));
    }
    if (states.empty()) continue;
    DELINK_ASSIGN_OR_RETURN(At(updates, tensor.slab), saved.Updates(tensor));
  }
  return updates;
}

// The number of updates of each slab after the change.
std::vector<int64_t> UpdatesAfter(const std::vector<int64_t>& before,
                                  const std::vector<SlabOrigin>& origins,
                                  StatePolicy policy) {
  std::vector<int64_t> after;
  for (const SlabOrigin& origin : origins) {
    after.push_back(BeginsAnew(origin, policy) ? 0 : At(before, origin.slab));
  }
  return after;
}

// From file to file, a piece of a tensor at a time.
absl::StatusOr<std::string> WriteDelinked(
    Communicator& comm, const std::string& out, const CheckpointHeader& header,
    const SavedModel& saved, const Change& change, const Layout& from,
    const Layout& to, const std::vector<StateSpec>& states,
    const CheckpointFiles& files) {
  DELINK_ASSIGN_OR_RETURN(
      CheckpointValues before,
      CheckpointValues::Open(saved.path(), from, states, DType::kF32));
  DELINK_ASSIGN_OR_RETURN(const std::vector<int64_t> updates,
                          CheckAll(before, from, states));
  DELINK_ASSIGN_OR_RETURN(
      const std::vector<SlabOrigin> origins,
      GrowthOf(saved.registry(), saved.blocks(), saved.sharing(),
               change.sharing, change.growth));
  DelinkedValues values(before, {.from = from,
                                 .to = to,
                                 .states = states,
                                 .origins = origins,
                                 .policy = change.state,
                                 .growth = change.growth});
  DELINK_RETURN_IF_ERROR(MakeDirectories(out));
  return WriteCheckpoint(
      comm, out, header,
      {.layout = &to,
       .states = states,
       .updates = UpdatesAfter(updates, origins, change.state),
       .values = &values},
      files, 0);
}

}  // namespace

absl::StatusOr<OfflineDelinkReport> OfflineDelink(
    const OfflineDelinkOptions& options, const ModelList& models) {
  if (PathExists(options.out)) {
    return absl::AlreadyExistsError(
        absl::StrCat(options.out, ": already exists; choose another folder"));
  }
  const std::unique_ptr<Communicator> comm =
      std::make_unique<SelfCommunicator>();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::Open(*comm, options.checkpoint, models));
  DELINK_ASSIGN_OR_RETURN(const Change change, PlanChange(options, *saved));

  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SlabOptimizer> optimizer,
                          MakeOptimizer(saved->recipe(), saved->registry()));
  const std::vector<StateSpec> states = optimizer->states();
  // Stores of both models that allocate nothing.
  const std::unique_ptr<Device> meta = NewMetaDevice();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> from,
                          StoreOf(*meta, *saved, saved->sharing(), states));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> to,
                          StoreOf(*meta, *saved, change.sharing, states));
  OfflineDelinkReport report{.from = saved->path(),
                             .stage_before = saved->run().stage,
                             .stage_after = saved->run().stage,
                             .state = change.state,
                             .depth_before = from->layout().depth(),
                             .depth_after = to->layout().depth(),
                             .grow = change.growth.policy,
                             .before = ReportSharing(*from, 0),
                             .after = ReportSharing(*to, 0)};
  CheckpointHeader header = saved->header();
  header.program = BuildLine();
  SavedRun run = saved->run();
  BeginStage(saved->recipe(), run);
  if (static_cast<int64_t>(change.stage) != run.stage_index) {
    run.stage = saved->recipe().stages[change.stage].name;
    run.stage_index = static_cast<int64_t>(change.stage);
    report.stage_after = run.stage;
  }
  header.values = run.Values();
  DELINK_ASSIGN_OR_RETURN(const CheckpointFiles files, saved->Files());
  DELINK_ASSIGN_OR_RETURN(
      report.to, WriteDelinked(*comm, options.out, header, *saved, change,
                               from->layout(), to->layout(), states, files));
  return report;
}

std::string ToString(const OfflineDelinkReport& r) {
  std::string text = absl::StrCat("delinked ", r.from, "\n      to ", r.to);
  if (r.stage_before == r.stage_after) {
    absl::StrAppend(&text, "\nstage ", r.stage_before, ", as before");
  } else {
    absl::StrAppend(&text, "\nstage ", r.stage_before, " -> ", r.stage_after);
  }
  if (r.depth_before < r.depth_after) {
    absl::StrAppend(&text, "; from ", r.depth_before, " to ", r.depth_after,
                    " blocks, new ones by ", std::string(ToString(r.grow)));
  }
  absl::StrAppend(&text, "; weights bit for bit; optimizer state: ",
                  std::string(ToString(r.state)), "\n");
  const std::pair<const char*, const SharingReport*> sides[] = {
      {"before", &r.before}, {"after ", &r.after}};
  for (const auto& [name, side] : sides) {
    absl::StrAppend(&text, name, "  ",
                    FormatCount(static_cast<double>(side->unique_parameters)),
                    " unique parameters, ",
                    FormatCount(static_cast<double>(side->virtual_parameters)),
                    " virtual; weights ", FormatBytes(side->weight_bytes),
                    ", optimizer state ", FormatBytes(side->state_bytes), "\n");
  }
  return text;
}

}  // namespace delink
