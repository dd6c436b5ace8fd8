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
      "which layers share weights: all of them, N runs of consecutive layers, "
      "where N divides the layers, every N-th layer, or none. In a table, "
      "parts that are not listed share nothing: `{ attention = \"all\", mlp = "
      "\"groups:4\" }`. Blocks without a part are passed over";
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
          {.doc = "where the stage ends, as a fraction of schedule.steps",
           .above = 0.0,
           .below = 1.0});
  s.Int("tokens", &until.tokens,
        {.doc = "the same in tokens since the start of the run, rounded up to "
                "a whole step",
         .min = 1});
  s.Int("steps", &until.steps,
        {.doc = "the same in steps since the start of the run", .min = 1});
  s.Float("plateau", &until.plateau,
          {.doc = "the stage ends sooner, where the loss of `window` steps "
                  "falls by less than so many nats (slope of the straight line "
                  "through them, times window)",
           .above = 0.0,
           .max = 1e3});
  s.Float("gradient", &until.gradient,
          {.doc = "the stage ends sooner, where the gradients of the layers "
                  "that share agree no more: (sum g)^2 / sum g^2, at most n "
                  "where n layers share and 1 where they are unrelated, in "
                  "the mean of the probes of a full window, falls to it",
           .above = 0.0,
           .max = 1e6});
  s.Int("window", &until.window,
        {.doc = "steps that plateau and gradient look at",
         .min = 3,
         .max = 1 << 20});
}

void DescribeDepth(Section& s, Stage& stage) {
  s.Int("depth", &stage.depth,
        {.doc = "blocks that this stage visits; the others do not exist yet. "
                "No fewer than in the stage before, and all of its",
         .fixed = true,
         .when_omitted = "model.layers",
         .min = 1});
  s.Enum("visit", &stage.visit, ToString,
         {.doc = "which blocks these are: the first, or block floor(i layers / "
                 "depth) for each i",
          .fixed = true});
  s.Enum("grow", &stage.grow, ToString,
         {.doc = "what blocks begin with that the stage before did not visit: "
                 "the weights of the visited block next before (where that "
                 "stage shares, of those that share with it); block i those of "
                 "number i mod d of d visited blocks; the initial ones of a "
                 "run from scratch; or these, with what writes to the residual "
                 "stream zero, which changes no loss. Copies have optimizer "
                 "state as `state` says, fresh weights none",
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
  document.SubTable("model", {.doc = "What is trained.", .fixed = true},
                    [&](Section& s) {
                      s.Custom(kind);
                      if (made == nullptr) return s.LetUnknownKeysPass();
                      made->Describe(s);
                    });
  *model = std::move(made);
}

void DescribeSchedule(Section& s, ScheduleConfig& schedule) {
  s.Enum("kind", &schedule.kind, Word,
         {.doc = "the learning rate after warm-up: held and then decayed "
                 "linearly (wsd), decayed by half a cosine or linearly over "
                 "the whole run, or held"});
  s.Int("steps", &schedule.steps,
        {.doc = "optimizer steps of the whole run",
         .required = true,
         .min = 1,
         .max = kMaxSteps});
  SpanKey(s, "warmup", &schedule.warmup,
          "linear warm-up to the peak at the start of the run; the first of W "
          "steps has 1/W of it");
  SpanKey(s, "decay", &schedule.decay, "the last stretch of a wsd schedule");
  s.Float("final_ratio", &schedule.final_ratio,
          {.doc = "learning rate of the last step over the peak; with 0 the "
                  "last step moves no weight",
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
           {.doc = "for logs and metrics",
            .when_omitted = "stage0, stage1, "
                            "..."});
  ShareKey(s, &stage.share);
  DescribeDepth(s, stage);
  s.SubTable("until",
             {.doc = "one of fraction, tokens, steps; plateau or gradient "
                     "besides or instead; not for the last stage",
              .instead = "until.fraction, until.steps or until.tokens"},
             [&](Section& t) { DescribeUntil(t, stage.until); });
  s.Enum("state", &stage.state, ToString,
         {.doc = "what becomes of optimizer state at the switch into this "
                 "stage: zero, a copy for each layer, a copy scaled by the "
                 "number of layers that shared (m / n, v / n^2), or one scaled "
                 "by what the gradients of the next batches measure, which "
                 "does not go with optimizer.clip_value"});
  s.Int("calibration_batches", &stage.calibration_batches,
        {.doc = "batches that `state = \"calibrated\"` goes through without an "
                "update",
         .min = 1,
         .max = 1024});
  s.Int("warmup", &stage.warmup,
        {.doc = "steps over which the learning rate is warmed up again after "
                "the switch into this stage",
         .min = 0,
         .max = kMaxSteps});
  s.Float("lr_scale", &stage.lr_scale,
          {.doc = "the scheduled learning rate is multiplied by it",
           .min = 0.0,
           .max = 1e3});
  BlendKey(s, &stage.blend);
  s.Int("batch", &stage.batch,
        {.doc = "sequences an optimizer step in this stage",
         .fixed = true,
         .when_omitted = "data.batch",
         .min = 1,
         .max = kMaxSequences});
  s.Int("micro_batch", &stage.micro_batch,
        {.doc = "sequences a rank computes at once in this stage",
         .when_omitted = "run.micro_batch",
         .min = 1,
         .max = kMaxSequences});
  s.Enum("recompute", &stage.recompute, Word,
         {.doc = "recompute in this stage", .when_omitted = "run.recompute"});
  s.SubTable("parallel", {.doc = "the layout of the ranks"},
             [&](Section& t) { DescribeParallel(t, stage.parallel); });
  s.SubTable("offload",
             {.doc = "what is at home in the host's memory; nothing where it "
                     "is left out, whatever the stage before has"},
             [&](Section& t) { DescribeOffload(t, stage.offload); });
}

void DescribeRest(Section& document, Recipe& recipe) {
  document.SubTable("data", {.doc = "What it is trained on."},
                    [&](Section& s) { DescribeData(s, recipe.data); });
  document.SubTable(
      "optimizer", {.doc = "How weights are updated."},
      [&](Section& s) { DescribeOptimizer(s, recipe.optimizer); });
  document.SubTable("schedule",
                    {.doc = "The learning rate over the run; [formulas]"
                            "(optimizers.md#the-learning-rate)."},
                    [&](Section& s) { DescribeSchedule(s, recipe.schedule); });
  document.SubTables<Stage>(
      "stage",
      {.doc = "The stages of Pseudo-to-Real, in order, each a `[[stage]]`. "
              "Without any there is one, which shares nothing. A later stage "
              "may only cut links that an earlier one has, and visit more "
              "blocks: [growth](pseudo-to-real.md#growth-a-stage-that-runs-"
              "fewer-layers)."},
      &recipe.stages, DescribeStage);
  document.SubTable("run", {.doc = "How it is run."},
                    [&](Section& s) { DescribeRun(s, recipe.run); });
}

}  // namespace delink::schema
