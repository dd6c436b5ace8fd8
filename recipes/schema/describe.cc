#include "recipes/schema/describe.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/schema/limits.h"

namespace delink::schema {

static std::string_view Word(Schedule::Kind kind) {
  switch (kind) {
    case Schedule::Kind::kWsd:
      return "wsd";
    case Schedule::Kind::kCosine:
      return "cosine";
    case Schedule::Kind::kLinear:
      return "linear";
    case Schedule::Kind::kConstant:
      return "constant";
  }
  return "";
}

namespace {

void SpanKey(Section& section, std::string_view name, Span* span,
             std::string_view doc) {
  Field field;
  field.name = std::string(name);
  field.type = "steps (integer), or a fraction of steps (0.0 to 1.0)";
  field.doc = std::string(doc);
  field.read = [=](const Value& given, Report& report) {
    if (const int64_t* steps = given.As<int64_t>()) {
      if (*steps >= 0 && *steps <= kMaxSteps) {
        *span = *steps;
      } else {
        report.Error(given.source, absl::StrFormat("%d is out of range: 0 to "
                                                   "%d steps",
                                                   *steps, kMaxSteps));
      }
    } else if (const double* fraction = given.As<double>()) {
      if (*fraction >= 0 && *fraction <= 1) {
        *span = *fraction;
      } else {
        report.Error(given.source,
                     absl::StrFormat("%s is out of range: 0.0 to 1.0 of steps",
                                     ToToml(given)));
      }
    } else {
      report.WrongType(given, "steps (integer) or a fraction of steps (float)");
    }
  };
  field.write = [=] {
    return std::visit([](auto x) { return Value(x); }, *span);
  };
  section.Custom(field);
}

void ReadShareMap(const Table& table, ShareSpec* share, Report& report) {
  ShareSpec spec;
  bool good = true;
  for (const auto& [part, source, value] : table) {
    const std::string* text = value.As<std::string>();
    if (text == nullptr) {
      report.WrongType(value, "all, groups:N, cycle:N or none");
      good = false;
      continue;
    }
    const auto policy = ParseSharePolicy(*text);
    if (!policy.ok()) {
      report.Error(value.source, std::string(policy.status().message()));
      good = false;
      continue;
    }
    spec.parts[part] = *policy;
  }
  if (good) *share = spec;
}

void ShareKey(Section& section, ShareSpec* share) {
  Field field;
  field.name = "share";
  field.type =
      "\"all\", \"groups:N\", \"cycle:N\" or \"none\", or a table of them by "
      "part";
  field.doc =
      "which layers share weights. all: all layers; groups:N: N groups of "
      "consecutive layers, where N divides the layers; cycle:N: every N-th "
      "layer; none: no layers. A table sets this by part: `{ attention = "
      "\"all\", mlp = \"groups:4\" }`; parts that are not listed share "
      "nothing, and blocks that lack a part are ignored";
  field.fixed = true;
  field.read = [=](const Value& given, Report& report) {
    if (const Table* table = given.As<Table>()) {
      return ReadShareMap(*table, share, report);
    }
    const std::string* text = given.As<std::string>();
    if (text == nullptr) {
      return report.WrongType(given, "a string or a table of parts");
    }
    const auto spec = ParseShareSpec(*text);
    if (!spec.ok()) {
      return report.Error(given.source, std::string(spec.status().message()));
    }
    *share = *spec;
  };
  field.write = [=] {
    if (share->every) return Value(ToString(*share->every));
    Table table;
    for (const auto& [part, policy] : share->parts) {
      Member& member = table.emplace_back();
      member.key = part;
      member.value = Value(ToString(policy));
    }
    return table.empty() ? Value(std::string("none")) : Value(table);
  };
  section.Custom(field);
}

void DescribeUntil(Section& s, Until& until) {
  s.Float("fraction", &until.fraction,
          {.doc = "end of the stage as a fraction of schedule.steps",
           .above = 0.0,
           .below = 1.0});
  s.Int("tokens", &until.tokens,
        {.doc = "end of the stage in tokens since the start of the run, "
                "rounded up to a whole step",
         .min = 1});
  s.Int("steps", &until.steps,
        {.doc = "end of the stage in steps since the start of the run",
         .min = 1});
  s.Float("plateau", &until.plateau,
          {.doc = "the stage ends earlier if the loss falls by less than this "
                  "many nats over `window` steps (slope of the line fitted "
                  "through them, times window)",
           .above = 0.0,
           .max = 1e3});
  s.Float("gradient", &until.gradient,
          {.doc = "the stage ends earlier if the gradients of layers that "
                  "share no longer agree: when the mean of (sum g)^2 / sum g^2 "
                  "over the probes of a full window falls to this value. It is "
                  "at most n for n layers that share, and 1 for unrelated "
                  "gradients",
           .above = 0.0,
           .max = 1e6});
  s.Int("window", &until.window,
        {.doc = "number of steps that plateau and gradient evaluate",
         .min = 3,
         .max = 1 << 20});
}

void DescribeDepth(Section& s, Stage& stage) {
  s.Int("depth", &stage.depth,
        {.doc = "number of blocks that this stage visits; the others do not "
                "exist yet. A stage visits at least all blocks of the previous "
                "stage",
         .fixed = true,
         .when_omitted = "model.layers",
         .min = 1});
  s.Enum("visit", &stage.visit, ToString,
         {.doc = "which blocks are visited. first: the first ones; even: block "
                 "floor(i layers / depth) for each i",
          .fixed = true});
  s.Enum("grow", &stage.grow, ToString,
         {.doc = "initial weights of blocks that the previous stage did not "
                 "visit. copy: those of the nearest earlier visited block (if "
                 "that stage shares, among the blocks that share with it); "
                 "cycle: block i copies number i mod d of the d visited "
                 "blocks; random: the initial weights of a run from scratch; "
                 "zero: the same, but with matrices that write to the residual "
                 "stream set to zero, so that the loss does not change. Copies "
                 "get optimizer state as `state` says, fresh weights none",
          .fixed = true,
          .when_omitted = "`\"copy\"`"});
}

}  // namespace

void DescribeModel(Section& document, std::shared_ptr<const ModelConfig>* model,
                   const std::vector<ModelKind>& kinds) {
  std::shared_ptr<ModelConfig> made;
  if (*model != nullptr) made = (*model)->Clone();
  Field kind;
  kind.name = "kind";
  kind.doc = "the kind of model, which decides the other keys";
  kind.required = true;
  std::vector<std::string> names;
  for (const ModelKind& k : kinds) {
    names.push_back(k.name);
    absl::StrAppend(&kind.type, kind.type.empty() ? "" : " or ", "\"", k.name,
                    "\"");
  }
  kind.read = [&](const Value& given, Report& report) {
    const std::string* name = given.As<std::string>();
    if (name == nullptr) return report.WrongType(given, kind.type);
    for (const ModelKind& k : kinds) {
      if (k.name == *name) made = k.make();
    }
    if (made == nullptr) {
      report.Error(given.source,
                   absl::StrFormat("there is no kind of model \"%s\"%s; there "
                                   "is %s",
                                   *name, Suggestion(*name, names), kind.type));
    }
  };
  kind.write = [&] { return Value(std::string(made->kind())); };
  document.SubTable("model", {.doc = "The model.", .fixed = true},
                    [&](Section& s) {
                      s.Custom(kind);
                      if (made == nullptr) return s.LetUnknownKeysPass();
                      made->Describe(s);
                    });
  *model = std::move(made);
}

void DescribeSchedule(Section& s, ScheduleConfig& schedule) {
  s.Enum("kind", &schedule.kind, Word,
         {.doc = "learning rate after warm-up. wsd: constant, then decayed "
                 "linearly; cosine: decayed by half a cosine over the whole "
                 "run; linear: decayed linearly over the whole run; constant: "
                 "not decayed"});
  s.Int("steps", &schedule.steps,
        {.doc = "optimizer steps of the whole run",
         .required = true,
         .min = 1,
         .max = kMaxSteps});
  SpanKey(s, "warmup", &schedule.warmup,
          "linear warm-up to the peak at the start of the run; the first of W "
          "steps has 1/W of the peak");
  SpanKey(s, "decay", &schedule.decay, "wsd: length of the final decay");
  s.Float("final_ratio", &schedule.final_ratio,
          {.doc = "learning rate of the last step divided by the peak; with 0 "
                  "the last step changes no weight",
           .min = 0.0,
           .max = 1.0});
  if (!s.complete()) return;
  if (schedule.warmup_steps() > schedule.steps) {
    s.Error("warmup", absl::StrFormat("%d steps are more than schedule.steps "
                                      "%d",
                                      schedule.warmup_steps(), schedule.steps));
  } else if (schedule.kind == Schedule::Kind::kWsd &&
             schedule.warmup_steps() + schedule.decay_steps() >
                 schedule.steps) {
    s.Error("decay",
            absl::StrFormat("warmup %d and decay %d steps are more than "
                            "schedule.steps %d",
                            schedule.warmup_steps(), schedule.decay_steps(),
                            schedule.steps));
  }
}

void DescribeStage(Section& s, Stage& stage) {
  s.String("name", &stage.name,
           {.doc = "name in logs and metrics",
            .when_omitted = "stage0, stage1, "
                            "..."});
  ShareKey(s, &stage.share);
  DescribeDepth(s, stage);
  s.SubTable("until",
             {.doc = "one of fraction, tokens and steps, and/or plateau or "
                     "gradient; not for the last stage",
              .instead = "until.fraction, until.steps or until.tokens"},
             [&](Section& t) { DescribeUntil(t, stage.until); });
  s.Enum("state", &stage.state, ToString,
         {.doc = "optimizer state after the switch into this stage. reset: "
                 "zero; copy: a copy for each layer; scale: a copy scaled by "
                 "the number n of layers that shared (m / n, v / n^2); "
                 "calibrated: a copy scaled by measured gradients of the next "
                 "batches (not with optimizer.clip_value)"});
  s.Int("calibration_batches", &stage.calibration_batches,
        {.doc = "batches that `state = \"calibrated\"` measures without an "
                "update",
         .min = 1,
         .max = 1024});
  s.Int("warmup", &stage.warmup,
        {.doc = "steps of a new learning rate warm-up after the switch into "
                "this stage",
         .min = 0,
         .max = kMaxSteps});
  s.Float(
      "lr_scale", &stage.lr_scale,
      {.doc = "factor of the scheduled learning rate", .min = 0.0, .max = 1e3});
  BlendKey(s, &stage.blend);
  s.Int("batch", &stage.batch,
        {.doc = "sequences per optimizer step in this stage",
         .fixed = true,
         .when_omitted = "data.batch",
         .min = 1,
         .max = kMaxSequences});
  s.Int("micro_batch", &stage.micro_batch,
        {.doc = "sequences that a rank computes at once in this stage",
         .when_omitted = "run.micro_batch",
         .min = 1,
         .max = kMaxSequences});
  s.Enum("recompute", &stage.recompute, Word,
         {.doc = "`run.recompute` for this stage",
          .when_omitted = "run.recompute"});
  s.SubTable("parallel", {.doc = "the layout of the ranks"},
             [&](Section& t) { DescribeParallel(t, stage.parallel); });
  s.SubTable("offload",
             {.doc = "what host memory holds: [offloading](offloading.md). "
                     "Without it nothing, whatever the previous stage "
                     "offloads"},
             [&](Section& t) { DescribeOffload(t, stage.offload); });
}

void DescribeRest(Section& document, Recipe& recipe) {
  document.SubTable("data", {.doc = "The training data."},
                    [&](Section& s) { DescribeData(s, recipe.data); });
  document.SubTable("optimizer", {.doc = "The optimizer."}, [&](Section& s) {
    DescribeOptimizer(s, recipe.optimizer);
  });
  document.SubTable("schedule",
                    {.doc = "The learning rate during the run "
                            "([formulas](optimizers.md#the-learning-rate))."},
                    [&](Section& s) { DescribeSchedule(s, recipe.schedule); });
  document.SubTables<Stage>(
      "stage",
      {.doc = "The stages of Pseudo-to-Real in order, each a `[[stage]]`. "
              "Without any, the run has one stage, which shares nothing. A "
              "later stage can only remove sharing and add blocks: "
              "[growth](pseudo-to-real.md#growth-a-stage-that-runs-fewer-"
              "layers)."},
      &recipe.stages, DescribeStage);
  document.SubTable("run", {.doc = "Execution, logs and checkpoints."},
                    [&](Section& s) { DescribeRun(s, recipe.run); });
}

}  // namespace delink::schema
