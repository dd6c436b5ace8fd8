// A small model whose weights are at home on the device or the host, and all
// that passes forward make of it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/sharing/resolve.h"
#include "offload/plan/place.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "recipes/saved/forward_pass.h"
#include "recipes/saved/generate.h"

namespace delink::testing {

struct StreamedOptions {
  bool llama = false;
  bool tied = false;
  std::string share = "none";
  int64_t dim = 24;
  OffloadRules homes;
};

class StreamedModel {
 public:
  static constexpr int64_t kLayers = 5, kVocab = 61, kPositions = 16;

  // The device outlives it. ResourceExhausted: it has too little for the
  // weights. The ranks of `world` shard them.
  static absl::StatusOr<std::unique_ptr<StreamedModel>> Create(
      Device& device, const StreamedOptions& options,
      Communicator* world = nullptr) {
    std::unique_ptr<StreamedModel> made(new StreamedModel);
    const Scope scope(made->registry_);
    made->model_ = options.llama ? BuildLlama(scope, Of<LlamaConfig>(options))
                                 : BuildGpt(scope, Of<GptConfig>(options));
    const int blocks = made->model_->blocks();
    const SharingMap sharing = *ResolveSharing(*ParseShareSpec(options.share),
                                               made->registry_, blocks);
    Layout layout = Layout::Create(
        made->registry_, blocks, sharing,
        {.mesh = {.data = world == nullptr ? 1 : world->size()}, .zero = 3});
    layout = layout.WithTiers(PlaceSlabs(layout, options.homes));
    DELINK_ASSIGN_OR_RETURN(
        made->store_,
        ParamStore::Create(
            device, std::move(layout), world == nullptr ? 0 : world->rank(),
            {.gradients = false, .states = {}, .master = MasterForm::kNone}));
    made->store_->InitWeights(1);
    if (world == nullptr) return made;
    DELINK_ASSIGN_OR_RETURN(made->ranks_,
                            ForwardRanks::Create(*made->store_, *world));
    return made;
  }
  ParamStore& store() { return *store_; }
  Sequential& model() { return *model_; }
  ForwardRanks* ranks() { return ranks_.get(); }

  // Losses of two batches, of all and by sequence; scores of some targets;
  // logits of so many tokens, by default of more than there are positions.
  std::vector<double> All(int tokens = 20) {
    std::vector<double> all = Losses();
    for (const double score : Scores()) all.push_back(score);
    for (const double logit : Generated(tokens)) all.push_back(logit);
    return all;
  }
  std::vector<double> Losses() {
    std::vector<double> all;
    const auto pass = *ForwardPass::Create(*model_, *store_,
                                           {.batch = kShape, .ranks = ranks()});
    for (const int first : {1, 7}) {
      all.push_back(pass->Loss(Batch(first, kVocab)).loss_sum);
    }
    return all;
  }
  std::vector<double> Scores() {
    std::vector<double> all;
    const auto pass = *ForwardPass::Create(
        *model_, *store_,
        {.batch = kShape, .by_sequence = true, .ranks = ranks()});
    // Of a batch without targets nobody needs the last layer.
    for (const int targets : {5, 0, 3}) {
      const HostBatch batch = Batch(2, targets);
      for (const auto& score : pass->Scores(batch)) {
        all.push_back(score.log_likelihood);
      }
      for (const LossRecord& loss : pass->Losses(batch)) {
        all.push_back(loss.loss_sum);
      }
    }
    return all;
  }
  std::vector<double> Generated(int tokens) {
    std::vector<double> all;
    Generator generator(*model_, *store_,
                        {.seed = 3, .positions = kPositions, .ranks = ranks()});
    generator.Prompt(std::vector<int32_t>{5, 17, 2});
    for (int i = 0; i < tokens; ++i) {
      const std::vector<double>& logits = generator.Logits();
      all.insert(all.end(), logits.begin(), logits.end());
      all.push_back(generator.Next());
    }
    return all;
  }

 private:
  StreamedModel() = default;

  static constexpr BatchShape kShape{.micro_batch = 2, .seq = kPositions};

  template <typename Config>
  static Config Of(const StreamedOptions& options) {
    Config c;
    c.layers = kLayers;
    c.vocab = kVocab;
    c.max_seq = kPositions;
    c.dim = options.dim;
    c.heads = 4;
    c.kv_heads = 4;
    c.ffn = options.dim * 2 - 8;
    c.init_std = 0.3;
    c.tied = options.tied;
    return c;
  }
  // Targets below `targets` count.
  static HostBatch Batch(int first, int targets) {
    HostBatch batch{.samples = {0, 1}};
    for (int i = 0; i < kShape.tokens(); ++i) {
      const auto target = static_cast<int32_t>((first + i * 5) % kVocab);
      batch.inputs.push_back(static_cast<int32_t>((first + i * 7) % kVocab));
      batch.targets.push_back(target < targets ? target : -1);
    }
    return batch;
  }

  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<ForwardRanks> ranks_;
};

// Where the weights of a slab may be, a word each.
inline OffloadRules HomesOf(const std::string& words) {
  OffloadRules rules;
  constexpr auto kHost = decltype(OffloadWishes::weights)::value_type::kHost;
  if (words == "all") rules.all.weights = kHost;
  if (words == "blocks") rules.resident = 0;
  if (words == "half") rules.resident = 0.5;
  if (words == "parts") {
    rules.rows = {{.match = "blocks/[13]/mlp/*", .wishes = {kHost}},
                  {.match = "embed/*", .wishes = {kHost}}};
  }
  return rules;
}
inline constexpr const char* kHomes[] = {"all", "blocks", "half", "parts"};

}  // namespace delink::testing
