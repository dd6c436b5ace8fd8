#include "framework/step/plan/measure.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/module/binder.h"
#include "framework/step/groups/visit_groups.h"

namespace delink {
namespace {

class Measurer {
 public:
  Measurer(Device& device, Sequential& model, ParamStore& store,
           const MeasureOptions& options)
      : stream_(device.NewStream()),
        model_(model),
        store_(store),
        binder_(store),
        tensor_(GroupOf(Axis::kTensor, options)),
        context_(GroupOf(Axis::kContext, options)),
        expert_(GroupOf(Axis::kExpert, options)),
        tape_({.device = &device,
               .stream = stream_.get(),
               .accumulate = options.accumulate,
               .groups = {.tensor = OrNone(tensor_),
                          .context = OrNone(context_),
                          .expert = OrNone(expert_),
                          .sequence = options.sequence && tensor_.size() > 1,
                          .same_tokens = options.batch.same_tokens}},
              memory_) {}

  // Kernels of the meta device read nothing; ops may want pointers that are
  // not null.
  void SetInputs(void* anywhere, const BatchShape& batch) {
    const auto* const numbers = static_cast<const int32_t*>(anywhere);
    const bool alone = tensor_.size() == 1 && context_.size() == 1;
    if (batch.masked || !alone) inputs_.positions = numbers;
    if (batch.masked) inputs_.documents = numbers;
    if (context_.size() > 1) inputs_.places = numbers;
    inputs_.all_counted = batch.all_counted;
    inputs_.sequences = batch.micro_batch;
    inputs_.expert_room = batch.expert_room;
    inputs_.expert_overlap = batch.expert_overlap;
    inputs_.deterministic = batch.deterministic;
    inputs_.remake = batch.remake;
    inputs_.step_key = static_cast<const RngKey*>(anywhere);
    inputs_.samples = static_cast<const int64_t*>(anywhere);
    inputs_.targets = static_cast<const int32_t*>(anywhere);
    inputs_.loss = static_cast<LossRecord*>(anywhere);
    inputs_.sums = static_cast<double*>(anywhere);
    inputs_.counted_targets = static_cast<const int64_t*>(anywhere);
    anywhere_ = anywhere;
  }

  // Only shapes and FLOPs, which one forward gives.
  LayerPlan Count(int layer, const Shape& shape, DType input_dtype) {
    LayerPlan plan{.input = shape};
    Forward(layer, Phase::kRecord, Tensor(anywhere_, input_dtype, shape));
    NoteWork(layer, plan);
    return plan;
  }

  LayerPlan Measure(int layer, const Shape& shape, DType input_dtype,
                    DType dtype) {
    LayerPlan plan{.input = shape};
    auto calls = std::make_shared<LayerCalls>();
    plan.calls = calls;
    const auto note = [&](Phase phase) {
      NoteIn(&At(plan.exchanges, phase));
      NoteCalls(&At(calls->of, phase));
    };
    const bool last = IsLast(layer);
    const Tensor input(anywhere_, input_dtype, shape);
    for (const Phase phase : {Phase::kEval, Phase::kForward, Phase::kRecord}) {
      note(phase);
      Forward(layer, phase, input);
      At(plan.visits, phase) = memory_.Plan();
    }
    NoteWork(layer, plan);
    const Tensor dy = last ? Tensor() : Tensor(anywhere_, dtype, plan.output);
    const Tensor dx = layer > 0 ? Tensor(anywhere_, dtype, shape) : Tensor();
    note(Phase::kBackward);
    Backward(layer, dy, dx);
    At(plan.visits, Phase::kBackward) = memory_.Plan();
    NoteAdded(layer, input, dy, dx, *calls);
    if (layer == 0 || last) return plan;
    std::vector<VisitExchange> again;
    NoteIn(&again);
    NoteCalls(&calls->again);
    // Backwards under recompute follow a forward that runs again.
    inputs_.again = true;
    Forward(layer, Phase::kRecord, input);
    inputs_.again = false;
    DELINK_CHECK(memory_.Plan() == At(plan.visits, Phase::kRecord) &&
                 again == At(plan.exchanges, Phase::kRecord))
        << model_.layer_name(layer)
        << " asks for other memory or exchanges when its forward runs again "
           "(VisitInputs::again)";
    note(Phase::kBackwardInput);
    tape_.RunBackwardInput(y_, dy, x_, dx);
    At(plan.visits, Phase::kBackwardInput) = memory_.Plan();
    note(Phase::kBackwardWeight);
    tape_.RunBackwardWeight();
    At(plan.visits, Phase::kBackwardWeight) = memory_.Plan();
    binder_.FinishGradients(layer, *stream_);
    return plan;
  }

 private:
  static NotingGroup GroupOf(Axis axis, const MeasureOptions& options) {
    return {axis, options.mesh.PlaceOf(options.rank)[axis],
            options.mesh.along(axis),
            axis == Axis::kExpert ? options.mesh.expert_nodes : 1};
  }
  static VisitGroup* OrNone(NotingGroup& group) {
    return group.size() > 1 ? &group : nullptr;
  }
  void NoteIn(std::vector<VisitExchange>* notes) {
    for (NotingGroup* group : {&tensor_, &context_, &expert_}) {
      group->NoteIn(notes);
    }
  }
  void NoteCalls(std::vector<KernelCall>* calls) {
    stream_->notes()->NoteIn(calls);
  }
  void Backward(int layer, const Tensor& dy, const Tensor& dx) {
    tape_.RunBackward(y_, dy, x_, dx);
    binder_.FinishGradients(layer, *stream_);
  }
  // Backwards that add to the gradients of one part each.
  void NoteAdded(int layer, const Tensor& input, const Tensor& dy,
                 const Tensor& dx, LayerCalls& calls) {
    const std::vector<int>& all = store_.slabs_of_layer(layer);
    const size_t slabs = all.size();
    calls.added.resize(slabs);
    std::vector<VisitExchange> exchanges;
    NoteIn(&exchanges);
    for (size_t slab = 0; slab < slabs; ++slab) {
      std::vector<bool> written;
      for (const int of : all) {
        const Slab &one = store_.slab(all[slab]), &other = store_.slab(of);
        written.push_back(one.part == other.part && one.layers == other.layers);
      }
      // The first slab of a part stands for all.
      if (std::ranges::find(written, true) - written.begin() !=
          static_cast<std::ptrdiff_t>(slab)) {
        continue;
      }
      NoteCalls(IsLast(layer) ? &calls.added[slab] : nullptr);
      Forward(layer, Phase::kRecord, input, written);
      NoteCalls(&calls.added[slab]);
      Backward(layer, dy, dx);
    }
  }
  bool IsLast(int layer) const { return layer == model_.layers() - 1; }

  // Of the forward before.
  void NoteWork(int layer, LayerPlan& plan) const {
    plan.flops = tape_.flops();
    plan.backward_flops = tape_.backward_flops();
    plan.weight_flops = tape_.weight_flops();
    plan.sums = tape_.sums_asked();
    if (!IsLast(layer)) plan.output = y_.shape();
  }

  void Forward(int layer, Phase phase, const Tensor& input) {
    Forward(layer, phase, input,
            std::vector<bool>(store_.slabs_of_layer(layer).size(), false));
  }
  void Forward(int layer, Phase phase, const Tensor& input,
               const std::vector<bool>& written) {
    binder_.Bind(layer, &written);
    inputs_.training = phase != Phase::kEval;
    tape_.BeginForward(phase, inputs_);
    x_ = tape_.Input(input, layer > 0);
    y_ = Var();
    if (IsLast(layer)) {
      model_.epilogue().Loss(x_);
    } else {
      y_ = model_.layer(layer)(x_);
      tape_.Finish(y_, Tensor());
    }
  }

  std::unique_ptr<Stream> stream_;
  Sequential& model_;
  ParamStore& store_;
  Binder binder_;
  MeasuringMemory memory_;
  NotingGroup tensor_, context_, expert_;
  Tape tape_;
  VisitInputs inputs_;
  Var x_, y_;
  void* anywhere_ = nullptr;
};

MeasureOptions OptionsOf(const ParamStore& store, const BatchShape& batch,
                         AccumulateFn accumulate, MeasuredLayers* known) {
  return {.device = store.device().kind(),
          .visited = store.sharing().visited,
          .dtype = store.options().dtype,
          .bf16_gradients = store.options().bf16_gradients,
          .batch = batch,
          .accumulate = accumulate,
          .known = known};
}

// The same without what does not matter.
MeasureOptions KeyOf(MeasureOptions options) {
  MeshPlace place = options.mesh.PlaceOf(options.rank);
  Mesh& mesh = options.mesh;
  mesh.data = mesh.PlacesOfVisit({Axis::kExpert}) / mesh.tensor / mesh.context;
  mesh.pipeline = 1;
  place[Axis::kPipeline] = 0;
  // Experts are cut into equal pieces, so it makes no difference which of them
  // a rank has.
  place[Axis::kData] = 0;
  options.rank = mesh.RankAt(place);
  options.known = nullptr;
  return options;
}

// That are kept.
constexpr size_t kMostMeasured = 256;

bool SameLayout(const MeasureOptions& a, const MeasureOptions& b) {
  return a.visited == b.visited && a.mesh == b.mesh && a.sequence == b.sequence;
}

// For all layers of one of the ranks that may have other pieces of parameters.
std::shared_ptr<const Layout> LayoutOf(const ParamRegistry& registry,
                                       int blocks,
                                       const MeasureOptions& options) {
  const Mesh& mesh = options.mesh;
  return std::make_shared<const Layout>(
      Layout::Create(registry, blocks, {.visited = options.visited},
                     {.mesh = {.tensor = mesh.tensor,
                               .data = mesh.weight_places() / mesh.tensor,
                               .expert = mesh.expert},
                      .sequence = options.sequence}));
}

std::vector<LayerPlan> Measure(Sequential& model,
                               std::shared_ptr<const Layout> layout,
                               const MeasureOptions& options) {
  const std::unique_ptr<Device> device = NewMetaDevice(options.device);
  const Mesh& mesh = options.mesh;
  const ParamRegistry& registry = layout->registry();
  absl::StatusOr<std::unique_ptr<ParamStore>> meta = ParamStore::Create(
      *device, std::move(layout), mesh.WeightPlaceOf(options.rank),
      {.dtype = options.dtype,
       .states = {},
       .master = MasterForm::kNone,
       .bf16_gradients = options.bf16_gradients});
  DELINK_CHECK(meta.ok());  // the meta device never runs out
  Measurer measurer(*device, model, **meta, options);
  measurer.SetInputs(*device->Allocate(0, "inputs"), options.batch);
  std::vector<LayerPlan> plans;
  BatchShape batch = options.batch;
  batch.context = mesh.context;
  Shape shape{batch.micro_batch, batch.local_seq()};
  for (const int layer : (*meta)->visited()) {
    const DType input = layer == 0 ? DType::kI32 : options.dtype;
    plans.push_back(options.work_alone
                        ? measurer.Count(layer, shape, input)
                        : measurer.Measure(layer, shape, input, options.dtype));
    shape = plans.back().output;
    if (options.work_alone || plans.size() < 2) continue;
    const auto& before = plans[plans.size() - 2].calls;
    if (*plans.back().calls == *before) plans.back().calls = before;
  }
  for (const ParamDecl& decl : registry.decls) {
    decl.param->Bind(Tensor(), Tensor(), false);
  }
  return plans;
}

}  // namespace

VisitFlops FlopsOf(const LayerPlan& layer, const Instruction& at) {
  VisitFlops flops;
  if (at.op == Op::kForward || at.op == Op::kLoss) flops.forward = layer.flops;
  if (HasGradients(at)) flops.backward = layer.backward_flops;
  if (at.op == Op::kBackwardWeight) flops.backward = layer.weight_flops;
  if (at.op == Op::kBackwardInput) {
    flops.backward = layer.backward_flops - layer.weight_flops;
  }
  if (RunsAgain(at)) flops.recompute = layer.flops;
  return flops;
}

void ForEachCalls(
    const LayerPlan& layer, const Instruction& at,
    const std::vector<bool>& written,
    const std::function<void(const std::vector<KernelCall>&, int)>& take) {
  if (!IsVisit(at) || layer.calls == nullptr) return;
  const LayerCalls& calls = *layer.calls;
  if (RunsAgain(at)) take(calls.again, 1);
  if (at.op == Op::kForward || at.op == Op::kLoss) {
    const bool keeps = (at.flags & (kRecompute | kForwardOnly)) == 0;
    take(At(calls.of, keeps ? Phase::kRecord : Phase::kForward), 1);
  }
  if (at.op == Op::kBackwardInput) {
    take(At(calls.of, Phase::kBackwardInput), 1);
  }
  if (!HasGradients(at)) return;
  const bool half = at.op == Op::kBackwardWeight;
  take(At(calls.of, half ? Phase::kBackwardWeight : Phase::kBackward), 1);
  for (size_t slab = 0; slab < written.size(); ++slab) {
    if (!written[slab] || At(calls.added, slab).empty()) continue;
    take(At(calls.added, slab), 1);
    take(At(calls.of, Phase::kBackward), -1);
    if (at.op == Op::kLoss) take(At(calls.of, Phase::kRecord), -1);
  }
}

std::vector<LayerPlan> MeasureLayers(Sequential& model,
                                     const ParamRegistry& registry,
                                     const MeasureOptions& options) {
  if (options.known == nullptr) {
    return Measure(model, LayoutOf(registry, model.blocks(), options), options);
  }
  auto& all = options.known->all_;
  const MeasureOptions key = KeyOf(options);
  const auto known = std::ranges::find_if(
      all, [&key](const auto& of) { return of.first == key; });
  if (known != all.end()) return known->second;
  // Many measurements in turn differ in the batch alone.
  std::shared_ptr<const Layout>& layout = options.known->layout_;
  if (all.empty() || !SameLayout(all.back().first, key)) {
    layout = LayoutOf(registry, model.blocks(), options);
  }
  if (all.size() == kMostMeasured) all.clear();
  all.emplace_back(key, Measure(model, layout, options));
  return all.back().second;
}

std::vector<LayerPlan> MeasureLayers(Sequential& model, const ParamStore& store,
                                     const BatchShape& batch,
                                     AccumulateFn accumulate,
                                     MeasuredLayers* known) {
  MeasureOptions options = OptionsOf(store, batch, accumulate, known);
  options.mesh = store.layout().mesh();
  options.rank = store.rank();
  options.sequence = store.layout().options().sequence;
  return MeasureLayers(model, store.registry(), options);
}

std::vector<LayerPlan> MeasureWork(Sequential& model, const ParamStore& store,
                                   const BatchShape& batch,
                                   AccumulateFn accumulate,
                                   MeasuredLayers* known) {
  MeasureOptions options = OptionsOf(store, batch, accumulate, known);
  options.work_alone = true;
  return MeasureLayers(model, store.registry(), options);
}

}  // namespace delink
