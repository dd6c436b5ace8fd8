#include "recipes/models/moe_config.h"

#include "absl/strings/str_format.h"
#include "recipes/schema/recipe.h"
#include "recipes/schema/section.h"

namespace delink {
namespace {

// Of a GPU's blocks, along the axes that have experts.
constexpr int64_t kMaxExperts = 65535;

std::string_view Word(MoeConfig::Block block) {
  switch (block) {
    case MoeConfig::Block::kLlama:
      return "llama";
    case MoeConfig::Block::kGpt:
      return "gpt";
  }
  return "";
}

std::string_view Word(MoeConfig::Score score) {
  switch (score) {
    case MoeConfig::Score::kSoftmax:
      return "softmax";
    case MoeConfig::Score::kSigmoid:
      return "sigmoid";
  }
  return "";
}

std::string_view Word(MoeConfig::AuxOver over) {
  switch (over) {
    case MoeConfig::AuxOver::kSequence:
      return "sequence";
    case MoeConfig::AuxOver::kMicroBatch:
      return "micro_batch";
    case MoeConfig::AuxOver::kBatch:
      return "batch";
  }
  return "";
}

std::string_view Word(MoeConfig::Drop drop) {
  switch (drop) {
    case MoeConfig::Drop::kProbability:
      return "probability";
    case MoeConfig::Drop::kPosition:
      return "position";
  }
  return "";
}

}  // namespace

TransformerConfig& MoeConfig::Blocks() {
  if (block == Block::kGpt) return gpt;
  return llama;
}

const TransformerConfig& MoeConfig::Dense() const {
  if (block == Block::kGpt) return gpt;
  return llama;
}

std::vector<std::string> MoeConfig::parts() const {
  std::vector<std::string> parts = {"attention", "norm"};
  bool dense = false, sparse = false;
  for (int64_t i = 0; i < layers; ++i) {
    (HasExperts(i) ? sparse : dense) = true;
  }
  if (dense) parts.emplace_back("mlp");
  if (!sparse) return parts;
  parts.insert(parts.end(), {"router", "experts"});
  if (shared_experts > 0) parts.emplace_back("shared_experts");
  return parts;
}

std::vector<ModelConfig::Cut> MoeConfig::cuts() const {
  std::vector<Cut> cuts = Dense().cuts();
  // `ffn` says nothing if all blocks have experts.
  if (HasExperts(0) && moe_every == 1) {
    std::erase_if(cuts, [](const Cut& cut) { return cut.key == "ffn"; });
  }
  if (shared_experts > 0) {
    cuts.push_back({.key = "expert_ffn", .count = shared_experts * expert_ffn});
  }
  return cuts;
}

std::optional<ModelConfig::Objection> MoeConfig::ObjectionTo(
    const ParallelConfig& parallel) const {
  if (parallel.tensor > 1 && !parallel.sequence.value_or(true)) {
    return Objection{"parallel.sequence",
                     "all tensor ranks would compute the experts of all "
                     "tokens; use sequence = true, with which each has its own "
                     "tokens"};
  }
  return Dense().ObjectionTo(parallel);
}

std::unique_ptr<ModelConfig> MoeConfig::Clone() const {
  return std::make_unique<MoeConfig>(*this);
}

ops::RouteConfig MoeConfig::Route() const {
  return {.top_k = top_k,
          .form = {.prototypes = prototypes,
                   .sigmoid = score == Score::kSigmoid,
                   .normalise = normalise || !before_top_k,
                   .groups = groups,
                   .top_groups = top_groups == groups ? 0 : top_groups,
                   .scale = scale},
          .capacity = capacity,
          .drop_by_position = drop == Drop::kPosition,
          .aux_loss = aux_loss,
          .aux_over_sequence = aux_over == AuxOver::kSequence,
          .z_loss = z_loss};
}

void MoeConfig::DescribeExperts(Section& s) {
  s.Int("experts", &experts,
        {.doc = "experts of a block, each an MLP",
         .required = true,
         .min = 1,
         .max = kMaxExperts});
  s.Int(
      "top_k", &top_k,
      {.doc = "experts that each token goes to", .min = 1, .max = kMaxExperts});
  s.Int("expert_ffn", &expert_ffn,
        {.doc = "width inside an expert",
         .when_omitted = "`ffn`",
         .min = 1,
         .max = TransformerConfig::kMaxSize});
  s.Int("shared_experts", &shared_experts,
        {.doc = "experts that all tokens go to, besides; they are one MLP of "
                "`shared_experts` x `expert_ffn`",
         .min = 0,
         .max = kMaxExperts});
  s.Float("capacity", &capacity,
          {.doc = "in training, an expert takes at most this many times its "
                  "even share of a micro-batch's tokens; other choices are "
                  "dropped. 0: none is",
           .min = 0.0,
           .max = 1e6});
  s.Int("prototypes", &prototypes,
        {.doc = "equal ranges of experts; a token chooses `top_k` / "
                "`prototypes` of each",
         .min = 1,
         .max = kMaxExperts});
  s.Int("moe_every", &moe_every,
        {.doc = "every so many blocks, the last of them has experts",
         .min = 1,
         .max = TransformerConfig::kMaxSize});
  s.Int("dense_layers", &dense_layers,
        {.doc = "the first so many blocks have no experts",
         .min = 0,
         .max = TransformerConfig::kMaxSize});
}

void MoeConfig::DescribeRouter(Section& s) {
  s.Enum("score", &score, Word,
         {.doc = "what gates are made of: softmax: over the experts, with "
                 "prototypes over each range; sigmoid: of each expert alone"});
  s.Bool("normalise", &normalise,
         {.doc = "a token's gates add up to `scale`, with prototypes those of "
                 "each range"});
  s.Bool("before_top_k", &before_top_k,
         {.doc = "the softmax is over all experts; if not, it is over those "
                 "chosen, as with `normalise`"});
  s.Int("groups", &groups,
        {.doc = "equal groups of experts, of which a token uses `top_groups`",
         .min = 1,
         .max = 64});
  s.Int("top_groups", &top_groups,
        {.doc = "groups that a token chooses its experts from: those whose two "
                "best have the largest sum",
         .when_omitted = "`groups`",
         .min = 1,
         .max = 64});
  s.Float("scale", &scale,
          {.doc = "factor of the gates", .above = 0.0, .max = 1e6});
  s.Float("bias_rate", &bias_rate,
          {.doc = "the choice, not the gates, has a bias for each expert, "
                  "which moves by so much after each step: up where an expert "
                  "had fewer choices than the mean, down where it had more",
           .min = 0.0,
           .max = 1.0});
  s.Float("aux_loss", &aux_loss,
          {.doc = "weight of the auxiliary loss for balance (Switch "
                  "Transformers), for each block with experts; the reported "
                  "loss excludes it",
           .min = 0.0,
           .max = 1e3});
  s.Enum("aux_over", &aux_over, Word,
         {.doc = "the tokens that the auxiliary loss balances; batch: those of "
                 "all ranks and micro-batches, with the loads of the step "
                 "before"});
  s.Float("z_loss", &z_loss,
          {.doc = "weight of the squared log-partition of the router's logits; "
                  "the reported loss excludes it",
           .min = 0.0,
           .max = 1e3});
  s.Enum("drop", &drop, Word,
         {.doc = "with `capacity`, an expert takes the choices with the "
                 "largest gates (probability) or the first (position)"});
}

void MoeConfig::Check(Section& s) {
  if (expert_ffn == 0) expert_ffn = Dense().ffn;
  if (top_groups == 0) top_groups = groups;
  if (experts % prototypes != 0) {
    return s.Error(
        "prototypes",
        absl::StrFormat("%d does not divide experts %d", prototypes, experts));
  }
  if (top_k % prototypes != 0) {
    return s.Error("prototypes", absl::StrFormat("%d does not divide top_k %d",
                                                 prototypes, top_k));
  }
  const int64_t range = experts / prototypes;
  const std::string of =
      prototypes > 1 ? absl::StrFormat("the %d experts of a prototype", range)
                     : absl::StrFormat("experts %d", range);
  if (range % groups != 0) {
    return s.Error("router.groups",
                   absl::StrFormat("%d does not divide %s", groups, of));
  }
  if (top_groups > groups) {
    return s.Error("router.top_groups",
                   absl::StrFormat("%d of %d groups", top_groups, groups));
  }
  const int64_t open = range / groups * top_groups;
  if (top_k / prototypes > open) {
    return s.Error(
        "top_k", absl::StrFormat("%d, but a token can choose %d at most: %d of "
                                 "%s, in %d of %d groups",
                                 top_k, open * prototypes, open, of, top_groups,
                                 groups));
  }
  if (!before_top_k && score == Score::kSigmoid) {
    return s.Error("router.before_top_k",
                   "has no effect with score \"sigmoid\"; use normalise");
  }
  const auto last = layers - layers % moe_every - 1;
  if (last >= 0 && HasExperts(last)) return;
  s.Error(last < 0 ? "moe_every" : "dense_layers",
          absl::StrFormat("leaves none of %d blocks with experts", layers));
}

void MoeConfig::Describe(Section& s) {
  s.Enum(
      "block", &block, Word,
      {.doc = "the kind whose blocks and experts these are; its keys are keys "
              "of this kind too (here those of `llama`)"});
  TransformerConfig& blocks = Blocks();
  blocks.layers = layers;
  blocks.vocab = vocab;
  blocks.max_seq = max_seq;
  blocks.Describe(s);
  layers = blocks.layers;
  vocab = blocks.vocab;
  max_seq = blocks.max_seq;
  DescribeExperts(s);
  s.SubTable("router", {.doc = "how tokens choose experts"},
             [this](Section& sub) { DescribeRouter(sub); });
  if (s.complete()) Check(s);
}

ModelKind MoeKind() {
  return {"moe",
          "Mixtures of experts (Mixtral, Qwen 3 MoE, OLMoE, dots.llm1, M6): a "
          "llama "
          "or gpt with experts in place of MLPs.",
          [] { return std::make_unique<MoeConfig>(); }};
}

}  // namespace delink
