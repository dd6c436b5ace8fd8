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
#include "recipes/models/moe_config.h"
#include "recipes/models/upcycling.h"
#include "recipes/record/environment.h"
#include "recipes/record/progress.h"
#include "recipes/run/position/skip_watch.h"
#include "recipes/run/stage/make_optimizer.h"
#include "recipes/saved/noisy_values.h"
#include "recipes/saved/saved_model.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

// The checkpoint seen as one of the model that is written.
struct SourceModel {
  const std::string& path;
  const SavedRun& run;
  const Recipe& recipe;
  const ParamRegistry& registry;
  int blocks = 0;
  const SharingMap& sharing;  // of the checkpoint
  const SavedAs& saved_as;
  const SharingMap* kept = nullptr;  // what stays by default; null: nothing
};

// The planned change of a checkpoint.
struct Change {
  SharingMap sharing;
  StatePolicy state = StatePolicy::kScale;
  Growth growth;
  size_t stage = 0;  // of the recipe
};

// The recipe's stage that the checkpoint is of.
size_t StageOf(const SourceModel& source) {
  return static_cast<size_t>(source.run.stage_index);
}

// Whether sharing and stage stay as they are.
bool KeepsSharing(const OfflineDelinkOptions& options,
                  const SourceModel& source) {
  return source.kept != nullptr && !options.share && !options.depth;
}

// The stage that the change follows; null: that of the checkpoint stays, or is
// the last.
const Stage* NextStage(const OfflineDelinkOptions& options,
                       const SourceModel& source) {
  const std::vector<Stage>& stages = source.recipe.stages;
  const size_t next = StageOf(source) + 1;
  if (KeepsSharing(options, source)) return nullptr;
  return next < stages.size() ? &stages[next] : nullptr;
}

// Whether two maps visit the same blocks and give them the same leaders.
bool SameSharing(const SourceModel& source, const SharingMap& a,
                 const SharingMap& b) {
  const std::vector<int> visited = a.VisitedOf(source.blocks);
  if (visited != b.VisitedOf(source.blocks)) return false;
  for (const std::string& part : PartsOf(source.registry, source.blocks)) {
    for (const int block : visited) {
      if (a.Leader(part, block) != b.Leader(part, block)) return false;
    }
  }
  return true;
}

// As SharingMap::visited.
absl::StatusOr<std::vector<int>> VisitedAfter(
    const OfflineDelinkOptions& options, const SourceModel& source) {
  const Recipe& recipe = source.recipe;
  const Stage* const next = NextStage(options, source);
  if (!options.depth) {
    return next != nullptr ? recipe.Visited(StageOf(source) + 1)
                           : source.sharing.visited;
  }
  if (*options.depth > source.blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.path, ": the model has ", source.blocks,
                     " blocks, fewer than --depth ", *options.depth));
  }
  const Stage& as = next != nullptr ? *next : recipe.stages[StageOf(source)];
  return VisitedBlocks(as.visit, *options.depth, source.blocks);
}

absl::Status CheckChange(const OfflineDelinkOptions& options,
                         const SourceModel& source, const ShareSpec& share,
                         const Change& change) {
  const int blocks = source.blocks;
  const absl::Status cuts = GrowthOf(source.registry, blocks, source.sharing,
                                     change.sharing, change.growth)
                                .status();
  if (!cuts.ok()) {
    return absl::Status(cuts.code(),
                        absl::StrCat(source.path, ": under '", ToString(share),
                                     "' ", cuts.message()));
  }
  const size_t depth = change.sharing.VisitedOf(blocks).size();
  if (options.grow && depth == source.sharing.VisitedOf(blocks).size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.path, ": has ", depth,
                     " blocks already, so none are added; leave --grow out, or "
                     "give a --depth"));
  }
  if (source.kept == nullptr &&
      SameSharing(source, source.sharing, change.sharing)) {
    return absl::InvalidArgumentError(absl::StrCat(
        source.path, ": there is nothing to cut: its sharing is already '",
        ToString(share), "'; give another --share or checkpoint"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Change> PlanChange(const OfflineDelinkOptions& options,
                                  const SourceModel& source) {
  const Stage* const next = NextStage(options, source);
  const std::vector<Stage>& stages = source.recipe.stages;
  const ShareSpec share = options.share.value_or(
      next != nullptr ? next->share : ShareSpec{.every = SharePolicy{}});
  Change change{.state = options.state.value_or(
                    next != nullptr ? next->state : StatePolicy::kScale),
                .stage = StageOf(source)};
  if (change.state == StatePolicy::kCalibrated) {
    return absl::InvalidArgumentError(absl::StrCat(
        source.path, ": state 'calibrated'",
        options.state.has_value() ? "" : ", as the recipe's next stage says,",
        " needs gradients, which only a run has: give --state scale or reset, "
        "or resume the run and let it switch"));
  }
  std::optional<GrowPolicy> grow = options.grow;
  if (!grow && next != nullptr) grow = next->grow;
  change.growth = {.policy = grow.value_or(GrowPolicy::kCopy),
                   .share = stages[StageOf(source)].share,
                   .seed = static_cast<uint64_t>(source.recipe.run.seed)};
  if (KeepsSharing(options, source)) {
    change.sharing = *source.kept;
  } else {
    DELINK_ASSIGN_OR_RETURN(std::vector<int> visited,
                            VisitedAfter(options, source));
    DELINK_ASSIGN_OR_RETURN(
        change.sharing, ResolveSharing(share, source.registry, source.blocks,
                                       std::move(visited)));
  }
  DELINK_RETURN_IF_ERROR(CheckChange(options, source, share, change));
  if (source.kept != nullptr &&
      SameSharing(source, *source.kept, change.sharing)) {
    return change;
  }
  for (size_t i = change.stage + 1; i < stages.size(); ++i) {
    DELINK_ASSIGN_OR_RETURN(
        const SharingMap planned,
        ResolveSharing(stages[i].share, source.registry, source.blocks,
                       source.recipe.Visited(i)));
    if (!SameSharing(source, planned, change.sharing)) continue;
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

// A store that allocates nothing.
absl::StatusOr<std::unique_ptr<ParamStore>> StoreOf(
    Device& meta, const ParamRegistry& registry, int blocks,
    const SharingMap& sharing, const std::vector<StateSpec>& states) {
  return ParamStore::Create(meta, Layout::Create(registry, blocks, sharing, {}),
                            0, {.gradients = false, .states = states});
}

// The number of updates of each slab, after checking that the checkpoint is
// complete and fits the model. Without states, updates are not counted.
absl::StatusOr<std::vector<int64_t>> CheckAll(
    CheckpointValues& saved, const Layout& layout, const SavedAs& saved_as,
    const std::vector<StateSpec>& states) {
  std::vector<int64_t> updates(layout.slabs().size(), 0);
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty() || saved_as.IsFresh(tensor.name)) continue;
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

// Where slabs come from: what the checkpoint lacks begins fresh, and each user
// of an MLP that becomes E experts was E users of it.
absl::StatusOr<std::vector<SlabOrigin>> OriginsOf(const SourceModel& source,
                                                  const Change& change,
                                                  const Layout& from) {
  DELINK_ASSIGN_OR_RETURN(
      std::vector<SlabOrigin> origins,
      GrowthOf(source.registry, source.blocks, source.sharing, change.sharing,
               change.growth));
  for (SlabOrigin& origin : origins) {
    if (origin.fresh()) continue;
    const ParamDecl& decl =
        source.registry.decl(At(from.slabs(), origin.slab).params.front().decl);
    if (source.saved_as.IsFresh(decl.name)) origin.slab = -1;
    if (source.saved_as.IsRepeated(decl.name)) {
      origin.before *= static_cast<int>(decl.spec.shape[0]);
    }
  }
  return origins;
}

// From file to file, a piece of a tensor at a time.
absl::StatusOr<std::string> WriteDelinked(
    Communicator& comm, const OfflineDelinkOptions& options,
    const CheckpointHeader& header, const SourceModel& source,
    const Change& change, const Layout& to,
    const std::vector<StateSpec>& states, const CheckpointFiles& files) {
  const Layout from =
      Layout::Create(source.registry, source.blocks, source.sharing, {});
  DELINK_ASSIGN_OR_RETURN(CheckpointValues before,
                          CheckpointValues::Open(source.path, from, states,
                                                 DType::kF32, source.saved_as));
  DELINK_ASSIGN_OR_RETURN(const std::vector<int64_t> updates,
                          CheckAll(before, from, source.saved_as, states));
  DELINK_ASSIGN_OR_RETURN(const std::vector<SlabOrigin> origins,
                          OriginsOf(source, change, from));
  NoisyValues noisy(before, options.noise, change.growth.seed);
  for (const LogicalTensor& tensor : from.tensors()) {
    if (options.noise == 0 || !tensor.link.empty() ||
        !source.saved_as.IsRepeated(tensor.name)) {
      continue;
    }
    DELINK_RETURN_IF_ERROR(
        noisy.Add(tensor, tensor.shape.elements() / tensor.shape[0]));
  }
  DelinkedValues values(noisy, {.from = from,
                                .to = to,
                                .states = states,
                                .origins = origins,
                                .policy = change.state,
                                .growth = change.growth});
  DELINK_RETURN_IF_ERROR(MakeDirectories(options.out));
  return WriteCheckpoint(
      comm, options.out, header,
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
  std::unique_ptr<UpcycledModel> upcycled;
  if (options.upcycle) {
    DELINK_ASSIGN_OR_RETURN(upcycled,
                            Upcycle(*saved, *options.upcycle, models));
  }
  const SavedAs as_it_is;
  const SourceModel source = {
      .path = saved->path(),
      .run = saved->run(),
      .recipe = upcycled ? upcycled->recipe : saved->recipe(),
      .registry = upcycled ? upcycled->registry : saved->registry(),
      .blocks = saved->blocks(),
      .sharing = upcycled ? upcycled->before : saved->sharing(),
      .saved_as = upcycled ? upcycled->saved_as : as_it_is,
      .kept = upcycled ? &upcycled->kept : nullptr};
  DELINK_ASSIGN_OR_RETURN(const Change change, PlanChange(options, source));

  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SlabOptimizer> optimizer,
                          MakeOptimizer(source.recipe, source.registry));
  const std::vector<StateSpec> states = optimizer->states();
  const std::unique_ptr<Device> meta = NewMetaDevice();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> from,
                          StoreOf(*meta, saved->registry(), source.blocks,
                                  saved->sharing(), states));
  DELINK_ASSIGN_OR_RETURN(
      const std::unique_ptr<ParamStore> to,
      StoreOf(*meta, source.registry, source.blocks, change.sharing, states));
  OfflineDelinkReport report{.from = saved->path(),
                             .stage_before = saved->run().stage,
                             .stage_after = saved->run().stage,
                             .state = change.state,
                             .depth_before = from->layout().depth(),
                             .depth_after = to->layout().depth(),
                             .grow = change.growth.policy,
                             .noise = options.noise,
                             .before = ReportSharing(*from, 0),
                             .after = ReportSharing(*to, 0)};
  DELINK_ASSIGN_OR_RETURN(CheckpointFiles files, saved->Files());
  CheckpointHeader header = saved->header();
  header.program = BuildLine();
  if (upcycled) {
    const MoeConfig& config = ConfigAs<MoeConfig>(*source.recipe.model);
    report.experts = config.experts;
    report.keeps_output = KeepsOutput(config);
    header.model = config.kind();
    files["recipe.toml"] = ToToml(source.recipe);
  }
  SavedRun run = saved->run();
  BeginStage(source.recipe, run);
  if (static_cast<int64_t>(change.stage) != run.stage_index) {
    run.stage = source.recipe.stages[change.stage].name;
    run.stage_index = static_cast<int64_t>(change.stage);
    report.stage_after = run.stage;
  }
  header.values = run.Values();
  DELINK_ASSIGN_OR_RETURN(report.to,
                          WriteDelinked(*comm, options, header, source, change,
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
  if (r.depth_before < r.depth_after) {
    absl::StrAppend(&text, "; from ", r.depth_before, " to ", r.depth_after,
                    " blocks, new ones by ", std::string(ToString(r.grow)));
  }
  if (r.experts > 0) {
    absl::StrAppend(&text, "; each MLP becomes ", r.experts, " expert(s)");
    if (r.noise > 0) {
      absl::StrAppend(&text, ", with noise of ", r.noise,
                      " standard deviations");
    }
  }
  absl::StrAppend(&text, "; weights bit for bit",
                  r.noise > 0 ? " but for the noise" : "",
                  "; optimizer state: ", std::string(ToString(r.state)), "\n");
  if (!r.keeps_output) {
    absl::StrAppend(&text,
                    "the output changes: a token's gates do not add up to 1, "
                    "or model.capacity drops choices\n");
  }
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
