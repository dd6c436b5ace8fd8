#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/limits.h"

namespace delink {

namespace schema {
namespace {

using Kind = OptimizerConfig::Kind;

// A kind of optimizer and the keys that only it and some others have.
struct KindKeys {
  std::string_view name, keys;
};

KindKeys KeysOf(Kind kind) {
  switch (kind) {
    case Kind::kAdamW:
      return {"adamw", "betas eps moments"};
    case Kind::kSgd:
      return {"sgd", "momentum nesterov"};
    case Kind::kLion:
      return {"lion", "betas"};
    case Kind::kAdafactor:
      return {"adafactor", "eps relative_step"};
    case Kind::kMuon:
      return {"muon", "betas eps momentum nesterov scale adamw_lr"};
  }
  return {};
}

}  // namespace

static std::string_view Word(Kind kind) { return KeysOf(kind).name; }

std::string_view Word(StateStorage storage) {
  switch (storage) {
    case StateStorage::kExact:
      return "fp32";
    case StateStorage::kBF16:
      return "bf16";
    case StateStorage::kBlock8:
      return "8bit";
  }
  return "";
}

static std::string_view Word(MuonConfig::Scale scale) {
  switch (scale) {
    case MuonConfig::Scale::kShape:
      return "shape";
    case MuonConfig::Scale::kRms:
      return "rms";
  }
  return "";
}

namespace {

bool HasKey(Kind kind, std::string_view key) {
  const std::string words = absl::StrFormat(" %s ", KeysOf(kind).keys);
  return words.find(absl::StrFormat(" %s ", key)) != std::string::npos;
}

// Reports keys that only other kinds have.
void CheckKeys(Section& s, Kind kind, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (!s.Has(key) || HasKey(kind, key)) continue;
    std::string others;
    for (const Kind other : ValuesOf<Kind>(Word)) {
      if (!HasKey(other, key)) continue;
      absl::StrAppend(&others, others.empty() ? "" : ", ",
                      std::string(Word(other)));
    }
    s.Error(key, absl::StrFormat("optimizer kind \"%s\" has no such key; it is "
                                 "one of %s",
                                 Word(kind), others));
  }
}

void BetasKey(Section& s, std::vector<double>* betas,
              std::string_view when_omitted) {
  s.Floats("betas", betas,
           {.doc = "adamw, muon: decay of the first and second moment; lion: "
                   "weight of the momentum in the step, and decay of the "
                   "stored momentum",
            .when_omitted = when_omitted,
            .min = 0.0,
            .below = 1.0,
            .size = 2});
}

void MomentumKey(Section& s, std::optional<double>* momentum,
                 std::string_view when_omitted) {
  s.Float("momentum", momentum,
          {.doc = "sgd, muon: the factor by which the momentum decays per step",
           .fixed = true,
           .when_omitted = when_omitted,
           .min = 0.0,
           .below = 1.0});
}

void DecayKey(Section& s, std::optional<double>* decay, std::string_view doc,
              std::string_view when_omitted) {
  s.Float("decay", decay,
          {.doc = doc, .when_omitted = when_omitted, .min = 0.0, .max = 1e3});
}

void DescribeKinds(Section& s, OptimizerConfig& optimizer) {
  BetasKey(s, &optimizer.betas, "`[0.9, 0.95]`, lion `[0.9, 0.99]`");
  s.Float("eps", &optimizer.eps,
          {.doc = "adamw, muon: added to the root of the second moment; "
                  "adafactor: the smallest root of a second moment. At least "
                  "1.2e-38, for adafactor, which squares it, 1.1e-19: less "
                  "would be 0 in fp32",
           .when_omitted = "`1e-08`, adafactor `1e-15`",
           .above = 0.0,
           .max = 1.0});
  s.Enum("moments", &optimizer.moments, Word,
         {.doc = "adamw: precision of both moments. bf16: for matrices, "
                 "rounded stochastically; 8bit: for matrices of blocks, 256 "
                 "elements per scale. Moments of other parameters stay fp32",
          .when_omitted = "`\"fp32\"`"});
  MomentumKey(s, &optimizer.momentum, "sgd `0.9`, muon `0.95`");
  s.Bool("nesterov", &optimizer.nesterov,
         {.doc = "sgd, muon: Nesterov momentum: step by the momentum that the "
                 "next gradient would give if it were equal to this one",
          .when_omitted = "sgd `false`, muon `true`"});
  s.Enum("scale", &optimizer.scale, Word,
         {.doc = "muon: factor of lr for a matrix. shape: sqrt(max(1, rows / "
                 "columns)); rms: 0.2 sqrt(max(rows, columns)), for steps as "
                 "large as those of adamw",
          .when_omitted = "`\"shape\"`"});
  s.Float("adamw_lr", &optimizer.adamw_lr,
          {.doc = "muon: peak learning rate of the parameters that adamw "
                  "updates: embeddings, an output head, norms, biases",
           .when_omitted = "lr",
           .min = 0.0,
           .max = 1e3});
  s.Bool("relative_step", &optimizer.relative_step,
         {.doc = "adafactor: true: the step is the size of a parameter times "
                 "lr, or times 1 / sqrt(updates) if that is smaller; false: "
                 "the step is lr. If the state is reset at a switch, the count "
                 "of updates restarts",
          .when_omitted = "`true`"});
  DecayKey(s, &optimizer.decay,
           "weight decay, not applied to norms and biases; decoupled, except "
           "for sgd, which adds it to the gradient",
           "`0.1`, sgd and adafactor `0.0`");
}

void Resolve(OptimizerConfig& c) {
  const auto complete = [&](const char* key, auto& value, auto standard) {
    if (HasKey(c.kind, key) && !value) value = standard;
  };
  const bool lion = c.kind == Kind::kLion, sgd = c.kind == Kind::kSgd;
  const bool adafactor = c.kind == Kind::kAdafactor;
  if (HasKey(c.kind, "betas") && c.betas.empty()) {
    c.betas = {0.9, lion ? 0.99 : 0.95};
  }
  complete("eps", c.eps, adafactor ? 1e-15 : 1e-8);
  complete("momentum", c.momentum, sgd ? 0.9 : 0.95);
  complete("nesterov", c.nesterov, !sgd);
  complete("scale", c.scale, MuonConfig::Scale::kShape);
  complete("adamw_lr", c.adamw_lr, c.lr);
  complete("relative_step", c.relative_step, true);
  complete("moments", c.moments, StateStorage::kExact);
  if (!c.decay) c.decay = sgd || adafactor ? 0.0 : 0.1;
}

// Checks the numbers for this kind, once all are read.
void CheckNumbers(Section& s, const OptimizerConfig& c) {
  // The smallest values that are normal in f32, plain or squared.
  const double least = c.kind == Kind::kAdafactor ? 1.1e-19 : 1.2e-38;
  if (c.eps && *c.eps < least) {
    s.Error("eps", absl::StrFormat("%g is so small that optimizer kind \"%s\" "
                                   "would divide by 0 in fp32; give at least "
                                   "%g, or leave the key out",
                                   *c.eps, Word(c.kind), least));
  }
  if (c.lr == 0 && c.adamw_lr.value_or(0) > 0) {
    s.Error(
        "adamw_lr",
        absl::StrFormat(
            "%g has no effect, because lr 0 makes every learning rate 0; set "
            "lr, and freeze matrices with a group that has lr_scale = 0",
            *c.adamw_lr));
  }
}

void DescribeSkip(Section& s, OptimizerConfig::Skip& skip) {
  s.Bool("nonfinite", &skip.nonfinite,
         {.doc = "skip steps whose loss or gradient is not finite; otherwise "
                 "such a step ends the run"});
  s.Float("outlier", &skip.outlier,
          {.doc = "skip steps whose gradient norm is this many standard "
                  "deviations above the mean of the last `window` steps; a "
                  "skipped step enters this mean with the largest norm that "
                  "would not have been skipped; 0: never",
           .min = 0.0,
           .max = 1e6});
  s.Int("window", &skip.window,
        {.doc = "number of steps for this mean; outliers are skipped once a "
                "stage has run that many",
         .min = 4,
         .max = 1 << 16});
  s.Int("most", &skip.most,
        {.doc = "most steps that may be skipped in a row; one more ends the "
                "run",
         .min = 1,
         .max = kMaxSteps});
}

void DescribeGroup(Section& s, OptimizerGroup& group) {
  s.String("match", &group.match,
           {.doc = "parameter names as in checkpoints "
                   "(`blocks/3/attn/qkv/weight`): `*` matches any characters, "
                   "`?` one character, `[ab]` one of the listed characters",
            .when_omitted = "`part` says it"});
  s.String("part", &group.part,
           {.doc = "in place of `match`: a part as in `share`, and what has "
                   "that part outside the blocks",
            .when_omitted = "none"});
  s.String("stage", &group.stage,
           {.doc = "the name of the only stage with these settings",
            .when_omitted = "all stages"});
  if (group.match.empty() == group.part.empty()) {
    s.Error(group.match.empty() ? "match" : "part",
            group.match.empty() ? "missing; a group has match or part"
                                : "a group has match or part, not both");
  }
  s.Float("lr_scale", &group.lr_scale,
          {.doc = "factor of the learning rate",
           .when_omitted = "`1.0`",
           .min = 0.0,
           .max = 1e6});
  DecayKey(s, &group.decay, "weight decay, also for norms and biases",
           "optimizer.decay");
  BetasKey(s, &group.betas, "optimizer.betas");
  MomentumKey(s, &group.momentum, "optimizer.momentum");
}

}  // namespace

void DescribeOptimizer(Section& s, OptimizerConfig& optimizer) {
  s.Enum(
      "kind", &optimizer.kind, Word,
      {.doc = "the optimizer: [optimizers.md](optimizers.md)", .fixed = true});
  s.Float(
      "lr", &optimizer.lr,
      {.doc = "peak learning rate", .required = true, .min = 0.0, .max = 1e3});
  DescribeKinds(s, optimizer);
  s.Float("clip", &optimizer.clip,
          {.doc = "largest global norm of the gradient; 0: no clipping",
           .min = 0.0,
           .max = 1e30});
  s.Float("clip_value", &optimizer.clip_value,
          {.doc = "largest absolute value of a gradient element, after `clip`; "
                  "0: no clipping",
           .min = 0.0,
           .max = 1e30});
  s.SubTable("skip", {.doc = "conditions under which a step changes nothing"},
             [&](Section& t) { DescribeSkip(t, optimizer.skip); });
  s.SubTables<OptimizerGroup>(
      "group",
      {.doc = "Settings for parameters with matching names. The first group "
              "that matches counts."},
      &optimizer.groups, [&](Section& t, OptimizerGroup& group) {
        DescribeGroup(t, group);
        CheckKeys(t, optimizer.kind, {"betas", "momentum"});
      });
  if (!s.complete()) return;
  CheckKeys(s, optimizer.kind,
            {"betas", "eps", "moments", "momentum", "nesterov", "scale",
             "adamw_lr", "relative_step"});
  if (!s.complete()) return;
  Resolve(optimizer);
  CheckNumbers(s, optimizer);
}

}  // namespace schema

std::string OptimizerConfig::kind_name() const {
  return std::string(schema::KeysOf(kind).name);
}

bool OptimizerConfig::has_momentum() const {
  return momentum.value_or(0) > 0 ||
         std::any_of(groups.begin(), groups.end(), [](const auto& group) {
           return group.momentum.value_or(0) > 0;
         });
}

}  // namespace delink
