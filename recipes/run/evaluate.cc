#include "recipes/run/evaluate.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/corpus/corpus.h"
#include "data/loader/loader.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/step/measure.h"
#include "layers/ops/accumulate.h"
#include "recipes/run/batches.h"
#include "recipes/run/saved_model.h"

namespace delink {
namespace {

absl::Status CheckCorpus(const SavedModel& saved, const Corpus& corpus,
                         const std::string& folder) {
  if (corpus.vocab_size() > saved.header().vocab) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, ": has a vocabulary of ", corpus.vocab_size(), ", but ",
        saved.path(), " has one of ", saved.header().vocab,
        "; evaluate on a corpus built with the checkpoint's tokenizer"));
  }
  DELINK_ASSIGN_OR_RETURN(const std::string tokenizer,
                          ReadFile(JoinPath(saved.path(), "tokenizer")));
  if (tokenizer != corpus.tokenizer_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, ": was built with another tokenizer than ", saved.path(),
        "; build it with --tokenizer ", JoinPath(saved.path(), "tokenizer")));
  }
  return absl::OkStatus();
}

// Runs the layers of a model one after the other, on one micro-batch.
class ForwardPass {
 public:
  static absl::StatusOr<std::unique_ptr<ForwardPass>> Create(
      Sequential& model, ParamStore& store, const BatchShape& batch) {
    std::unique_ptr<ForwardPass> pass(new ForwardPass(model, store, batch));
    DELINK_RETURN_IF_ERROR(pass->Allocate());
    return pass;
  }

  // The sum over the counted targets of one micro-batch.
  LossRecord Loss(const HostBatch& batch) {
    Device& device = store_.device();
    const int64_t bytes = batch_.tokens() * SizeOf(DType::kI32);
    device.CopyFromHost(*stream_, inputs_.data(), batch.inputs.data(), bytes);
    device.CopyFromHost(*stream_, targets_.data(), batch.targets.data(), bytes);
    device.CopyFromHost(*stream_, samples_.data(), batch.samples.data(),
                        batch_.micro_batch * SizeOf(DType::kI64));
    device.FillZero(*stream_, loss_.data(), sizeof(LossRecord));
    Tensor x(inputs_.data(), DType::kI32, layers_.front().input);
    for (int layer = 0; layer + 1 < model_.layers(); ++layer) {
      x = Visit(layer, x);
    }
    VisitLoss(x);
    LossRecord record;
    device.CopyToHost(*stream_, &record, loss_.data(), sizeof record);
    stream_->Synchronize();
    return record;
  }

 private:
  ForwardPass(Sequential& model, ParamStore& store, const BatchShape& batch)
      : model_(model),
        store_(store),
        batch_(batch),
        stream_(store.device().NewStream()),
        layers_(MeasureLayers(model, store.registry(), store.options().dtype,
                              batch, Accumulate, store.device().kind())) {}

  absl::Status Allocate() {
    int64_t workspace = 0;
    for (const LayerPlan& layer : layers_) {
      workspace = std::max(workspace, Plan(layer).workspace_bytes);
    }
    const int64_t boundary =
        layers_.front().output.elements() * SizeOf(store_.options().dtype);
    const int64_t tokens = batch_.tokens() * SizeOf(DType::kI32);
    const std::pair<Buffer*, int64_t> wanted[] = {
        {&workspace_, workspace},
        {&boundaries_[0], boundary},
        {&boundaries_[1], boundary},
        {&inputs_, tokens},
        {&targets_, tokens},
        {&samples_, batch_.micro_batch * SizeOf(DType::kI64)},
        {&loss_, static_cast<int64_t>(sizeof(LossRecord))}};
    for (const auto& [buffer, bytes] : wanted) {
      DELINK_ASSIGN_OR_RETURN(*buffer,
                              Buffer::Allocate(store_.device(), bytes));
    }
    return absl::OkStatus();
  }

  static const PhasePlan& Plan(const LayerPlan& layer) {
    return layer.visits[static_cast<size_t>(Phase::kEval)];
  }

  VisitInputs Inputs() const {
    return {.training = false,
            .samples = static_cast<const int64_t*>(samples_.data()),
            .targets = static_cast<const int32_t*>(targets_.data()),
            .loss = static_cast<LossRecord*>(loss_.data())};
  }

  Tape::Env TapeEnv() {
    return {.device = &store_.device(),
            .stream = stream_.get(),
            .accumulate = Accumulate};
  }

  // Layers write to the two boundaries in turn.
  Tensor Visit(int layer, const Tensor& input) {
    const LayerPlan& plan = layers_[static_cast<size_t>(layer)];
    const Tensor out(boundaries_[layer % 2].data(), store_.options().dtype,
                     plan.output);
    PlannedMemory memory(plan.visits);
    memory.Bind({.workspace = workspace_.data(), .boundary = out.data()});
    Tape tape(TapeEnv(), memory);
    store_.Bind(layer, nullptr);
    tape.BeginForward(Phase::kEval, Inputs());
    const Var y = model_.layer(layer)(tape.Input(input, false));
    tape.Finish(y, out);
    return out;
  }

  void VisitLoss(const Tensor& input) {
    PlannedMemory memory(layers_.back().visits);
    memory.Bind({.workspace = workspace_.data()});
    Tape tape(TapeEnv(), memory);
    store_.Bind(model_.layers() - 1, nullptr);
    tape.BeginForward(Phase::kEval, Inputs());
    model_.epilogue().Loss(tape.Input(input, true));
  }

  Sequential& model_;
  ParamStore& store_;
  BatchShape batch_;
  std::unique_ptr<Stream> stream_;
  std::vector<LayerPlan> layers_;
  Buffer workspace_, boundaries_[2], inputs_, targets_, samples_, loss_;
};

// The corpus as the checkpoint's recipe cuts it.
struct Source {
  std::unique_ptr<Corpus> corpus;
  std::unique_ptr<Loader> loader;
};

absl::StatusOr<Source> OpenSource(const SavedModel& saved,
                                  const std::string& folder,
                                  const Communicator& comm) {
  Source source;
  DELINK_ASSIGN_OR_RETURN(Corpus corpus,
                          Corpus::Open(folder, {.verify_index = comm.rank(),
                                                .verify_count = comm.size()}));
  DELINK_RETURN_IF_ERROR(CheckCorpus(saved, corpus, folder));
  source.corpus = std::make_unique<Corpus>(std::move(corpus));
  DELINK_ASSIGN_OR_RETURN(
      const Loader loader,
      Loader::Create(*source.corpus,
                     {.seq = saved.recipe().data.seq, .shuffle = false}));
  source.loader = std::make_unique<Loader>(loader);
  return source;
}

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const EvaluateOptions& options,
                                    const ModelList& models,
                                    Communicator& comm) {
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::Open(comm, options.checkpoint, models));
  absl::StatusOr<Source> source = OpenSource(*saved, options.data, comm);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, source.status()));
  std::unique_ptr<Device> device = NewCpuDevice();
  if (options.device != nullptr) {
    DELINK_ASSIGN_OR_RETURN(device, options.device(saved->recipe()));
  }
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> store,
                          saved->Load(comm, *device, 0));
  const DataConfig& data = saved->recipe().data;
  const BatchCut cut{.micro_batch = saved->recipe().run.micro_batch,
                     .seq = data.seq};
  auto pass = ForwardPass::Create(
      saved->model(), *store, {.micro_batch = cut.micro_batch, .seq = cut.seq});
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, pass.status()));

  int64_t end = source->loader->samples_per_epoch();
  if (options.batches > 0) end = std::min(end, options.batches * data.batch);
  const int64_t micro_batches = (end + cut.micro_batch - 1) / cut.micro_batch;
  // A place for each: their sum must not depend on who computes what.
  std::vector<double> losses(static_cast<size_t>(micro_batches));
  int64_t tokens = 0;
  absl::Status status;
  for (int64_t m = comm.rank(); m < micro_batches; m += comm.size()) {
    const auto batch =
        ReadBatchUntil(*source->loader, cut, m * cut.micro_batch, end);
    status = batch.status();
    if (!status.ok()) break;
    const LossRecord record = (*pass)->Loss(*batch);
    losses[static_cast<size_t>(m)] = record.loss_sum;
    tokens += record.tokens;
  }
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, status));
  DELINK_RETURN_IF_ERROR(
      comm.AllReduce(losses.data(), micro_batches, DType::kF64, ReduceOp::kSum)
          ->Wait());
  DELINK_ASSIGN_OR_RETURN(tokens,
                          AllReduceScalar(comm, tokens, ReduceOp::kSum));
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return Evaluation{.checkpoint = saved->path(),
                    .step = saved->header().step,
                    .stage = saved->header().stage,
                    .loss = sum / static_cast<double>(tokens),
                    .tokens = tokens,
                    .sequences = end};
}

std::string ToText(const Evaluation& e) {
  return absl::StrFormat(
      "%s (step %d, stage %s): loss %.6f nats a token, perplexity %.4f, over "
      "%d tokens\n",
      e.checkpoint, e.step, e.stage, e.loss, e.perplexity(), e.tokens);
}

std::string ToJson(const Evaluation& e) {
  const nlohmann::ordered_json all{{"checkpoint", e.checkpoint},
                                   {"step", e.step},
                                   {"stage", e.stage},
                                   {"loss", e.loss},
                                   {"perplexity", e.perplexity()},
                                   {"tokens", e.tokens},
                                   {"sequences", e.sequences}};
  return all.dump() + "\n";
}

}  // namespace delink
