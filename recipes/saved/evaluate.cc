#include "recipes/saved/evaluate.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/corpus/corpus.h"
#include "data/corpus/side.h"
#include "data/loader/loader.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "recipes/run/stage/batches.h"
#include "recipes/saved/forward_pass.h"

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

// The corpus in sequences of the checkpoint's recipe.
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
                          SavedModel::Open(comm, options.checkpoint, models,
                                           options.dtype, options.sets));
  absl::StatusOr<Source> source =
      OpenSource(*saved, SideOf(options.data, "validation"), comm);
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, source.status()));
  DELINK_ASSIGN_OR_RETURN(const Together together,
                          LoadTogether(*saved, options.device, comm));
  const DataConfig& data = saved->recipe().data;
  const BatchCut cut{.micro_batch = saved->recipe().run.micro_batch,
                     .seq = data.seq,
                     .masked = data.masked()};
  auto pass = ForwardPass::Create(saved->model(), *together.store,
                                  {.batch = {.micro_batch = cut.micro_batch,
                                             .seq = cut.seq,
                                             .masked = cut.masked},
                                   .ranks = together.ranks.get()});
  DELINK_RETURN_IF_ERROR(AgreeOnStatus(comm, pass.status()));

  int64_t end = source->loader->samples_per_epoch();
  if (options.batches > 0) end = std::min(end, options.batches * data.batch);
  const int64_t micro_batches = (end + cut.micro_batch - 1) / cut.micro_batch;
  // One entry per sequence, so that the sum does not depend on the ranks.
  std::vector<double> losses(static_cast<size_t>(micro_batches));
  int64_t tokens = 0;
  absl::Status status;
  const int64_t last = together.EndOf(micro_batches);
  for (int64_t m = together.place; m < last; m += together.places) {
    const auto batch =
        ReadBatchUntil(*source->loader, cut, m * cut.micro_batch, end);
    // Other ranks of a sharded model wait for this one.
    status = together.Agree(batch.status());
    if (!status.ok()) break;
    const LossRecord record = (*pass)->Loss(*batch);
    if (!together.counts() || m >= micro_batches) continue;
    At(losses, m) = record.loss_sum;
    tokens += record.tokens;
  }
  if (status.ok()) status = together.status();
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
                    .stage = saved->run().stage,
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
  return JsonText(all) + "\n";
}

}  // namespace delink
