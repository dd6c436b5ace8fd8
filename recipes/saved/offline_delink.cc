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
#include "framework/sharing/resolve.h"
#include "framework/step/memory.h"
#include "recipes/record/environment.h"
#include "recipes/record/progress.h"
#include "recipes/run/make_optimizer.h"
#include "recipes/run/skip_watch.h"
#include "recipes/saved/saved_model.h"

namespace delink {
namespace {

// What is to become of a checkpoint.
struct Change {
  SharingMap sharing;
  StatePolicy state = StatePolicy::kScale;
  size_t stage = 0;  // of the recipe
};

// The stage that follows the checkpoint's; null when it is the last.
const Stage* NextStage(const SavedModel& saved) {
  const auto next = static_cast<size_t>(saved.run().stage_index) + 1;
  const std::vector<Stage>& stages = saved.recipe().stages;
  return next < stages.size() ? &stages[next] : nullptr;
}

// Whether two maps, which visit the same blocks, give them the same leaders.
bool SameSharing(const SavedModel& saved, const SharingMap& a,
                 const SharingMap& b) {
  for (const std::string& part : PartsOf(saved.registry(), saved.blocks())) {
    for (const int block : a.VisitedOf(saved.blocks())) {
      if (a.Leader(part, block) != b.Leader(part, block)) return false;
    }
  }
  return true;
}

absl::StatusOr<Change> PlanChange(const OfflineDelinkOptions& options,
                                  const SavedModel& saved) {
  const Stage* const next = NextStage(saved);
  const ShareSpec share = options.share.value_or(
      next != nullptr ? next->share : ShareSpec{.every = SharePolicy{}});
  Change change{.state = options.state.value_or(
                    next != nullptr ? next->state : StatePolicy::kScale),
                .stage = static_cast<size_t>(saved.run().stage_index)};
  if (change.state == StatePolicy::kCalibrated) {
    return absl::InvalidArgumentError(absl::StrCat(
        saved.path(), ": state 'calibrated'",
        options.state.has_value() ? "" : ", as the recipe's next stage says,",
        " needs gradients, which only a run has: give --state scale or reset, "
        "or resume the run and let it switch"));
  }
  DELINK_ASSIGN_OR_RETURN(
      change.sharing, ResolveSharing(share, saved.registry(), saved.blocks(),
                                     saved.sharing().visited));
  if (const absl::Status cuts = RelationOf(saved.registry(), saved.blocks(),
                                           saved.sharing(), change.sharing)
                                    .status();
      !cuts.ok()) {
    return absl::Status(cuts.code(),
                        absl::StrCat(saved.path(), ": under '", ToString(share),
                                     "' ", cuts.message()));
  }
  if (SameSharing(saved, saved.sharing(), change.sharing)) {
    return absl::InvalidArgumentError(absl::StrCat(
        saved.path(), ": there is nothing to cut: it shares as '",
        ToString(share), "' already; name another --share or checkpoint"));
  }
  const std::vector<Stage>& stages = saved.recipe().stages;
  for (size_t i = change.stage + 1; i < stages.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(
        const SharingMap planned,
        ResolveSharing(stages[i].share, saved.registry(), saved.blocks(),
                       saved.sharing().visited));
    if (!SameSharing(saved, planned, change.sharing)) continue;
    change.stage = i;
    break;
  }
  return change;
}

// What is measured of a stage begins anew.
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

// By slab, once all that is to be read is there and fits the model. Without
// states there is nothing that counts updates.
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

// From file to file, a piece of a tensor at a time.
absl::StatusOr<std::string> WriteDelinked(
    Communicator& comm, const std::string& out, const CheckpointHeader& header,
    const SavedModel& saved, const Change& change, const Layout& layout,
    const std::vector<StateSpec>& states, const CheckpointFiles& files) {
  DELINK_ASSIGN_OR_RETURN(
      CheckpointValues before,
      CheckpointValues::Open(saved.path(), layout, states, DType::kF32));
  DELINK_ASSIGN_OR_RETURN(std::vector<int64_t> updates,
                          CheckAll(before, layout, states));
  DELINK_ASSIGN_OR_RETURN(std::vector<SlabOrigin> origins,
                          RelationOf(saved.registry(), saved.blocks(),
                                     saved.sharing(), change.sharing));
  for (size_t s = 0; s < updates.size(); ++s) {
    const bool reset = change.state == StatePolicy::kReset;
    if (reset && origins[s].changed()) updates[s] = 0;
  }
  DelinkedValues values(before, layout, states, std::move(origins),
                        change.state);
  DELINK_RETURN_IF_ERROR(MakeDirectories(out));
  return WriteCheckpoint(comm, out, header,
                         {.layout = &layout,
                          .states = states,
                          .updates = std::move(updates),
                          .values = &values},
                         files, 0);
}

}  // namespace

absl::StatusOr<OfflineDelinkReport> OfflineDelink(
    const OfflineDelinkOptions& options, const ModelList& models) {
  if (PathExists(options.out)) {
    return absl::AlreadyExistsError(absl::StrCat(
        options.out, ": is there already; name a folder that is not"));
  }
  const std::unique_ptr<Communicator> comm =
      std::make_unique<SelfCommunicator>();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::Open(*comm, options.checkpoint, models));
  DELINK_ASSIGN_OR_RETURN(const Change change, PlanChange(options, *saved));

  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SlabOptimizer> optimizer,
                          MakeOptimizer(saved->recipe(), saved->registry()));
  const std::vector<StateSpec> states = optimizer->states();
  // What the models would take, of which nothing is allocated.
  const std::unique_ptr<Device> meta = NewMetaDevice();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> from,
                          StoreOf(*meta, *saved, saved->sharing(), states));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> to,
                          StoreOf(*meta, *saved, change.sharing, states));
  OfflineDelinkReport report{.from = saved->path(),
                             .stage_before = saved->run().stage,
                             .stage_after = saved->run().stage,
                             .state = change.state,
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
                               to->layout(), states, files));
  return report;
}

std::string ToString(const OfflineDelinkReport& r) {
  std::string text = absl::StrCat("delinked ", r.from, "\n      to ", r.to);
  if (r.stage_before == r.stage_after) {
    absl::StrAppend(&text, "\nstage ", r.stage_before, ", as before");
  } else {
    absl::StrAppend(&text, "\nstage ", r.stage_before, " -> ", r.stage_after);
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
