#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/limits.h"

namespace delink::schema {

static std::string_view Word(DataConfig::Documents documents) {
  switch (documents) {
    case DataConfig::Documents::kPacked:
      return "packed";
    case DataConfig::Documents::kMasked:
      return "masked";
  }
  return "";
}

namespace {

void DescribeSource(Section& s, DataSource& source) {
  s.String("name", &source.name,
           {.doc = "for `blend`, logs and metrics; each source has its own",
            .required = true});
  s.Path("train", &source.train,
         {.doc = "the corpus to train on", .required = true});
  s.Path("validation", &source.validation,
         {.doc = "the corpus to validate on",
          .when_omitted = "`validation` beside `train` where there is one, "
                          "else none"});
  s.Float("weight", &source.weight,
          {.doc = "how much of the batches comes from here, against the "
                  "weights of the others",
           .min = 0.0,
           .max = kMaxWeight});
  s.Bool("repeat", &source.repeat,
         {.doc = "as data.repeat", .when_omitted = "data.repeat"});
}

}  // namespace

void DescribeData(Section& s, DataConfig& data) {
  s.Path("train", &data.train,
         {.doc = "the corpus to train on: a folder that `delink data build` "
                 "wrote (or `train` in it), relative to the recipe; of "
                 "several, `[[data.source]]` instead",
          .required = !s.Has("source")});
  s.Path("validation", &data.validation,
         {.doc = "the corpus to validate on",
          .when_omitted = "`validation` beside `train`"});
  s.Int("seq", &data.seq,
        {.doc = "tokens a sequence", .fixed = true, .min = 1, .max = kMaxSeq});
  s.Int("batch", &data.batch,
        {.doc = "sequences an optimizer step, over all ranks: a multiple of "
                "data ranks x micro_batch",
         .required = true,
         .fixed = true,
         .min = 1,
         .max = kMaxSequences});
  s.Int("validation_batches", &data.validation_batches,
        {.doc = "batches a validation", .min = 1, .max = kMaxSteps});
  s.Bool("shuffle", &data.shuffle,
         {.doc = "read the sequences in an order drawn from run.seed",
          .fixed = true});
  s.Enum("documents", &data.documents, Word,
         {.doc = "what a sequence makes of the documents that it holds: one "
                 "text, or each by itself: attention does not cross their "
                 "ends, positions restart, and what follows an end is not "
                 "predicted",
          .fixed = true});
  s.Bool("repeat", &data.repeat,
         {.doc = "where a corpus has ended, read it again, in another order; "
                 "else it leaves the blend, whose others keep their "
                 "proportions, and when the last has ended, so does the run"});
  s.SubTables<DataSource>(
      "source",
      {.doc = "Instead of `data.train`: the corpora of a blend, all built with "
              "one tokenizer."},
      &data.sources, DescribeSource);
  for (const char* key : {"train", "validation"}) {
    if (s.Has("source") && s.Has(key)) {
      s.Error(key,
              "there are [[data.source]] tables, which have a key of their own "
              "for it; leave this one out");
    }
  }
}

void BlendKey(Section& section, std::map<std::string, double>* blend) {
  Field field;
  field.name = "blend";
  field.type = "table of numbers by source, each at least 0";
  field.doc =
      "the weights of the sources from this stage on, 0 for those that are not "
      "listed: `{ web = 1, code = 2 }`";
  field.when_omitted = "`weight` of each source";
  field.read = [=](const Value& given, Report& report) {
    const Table* table = given.As<Table>();
    if (table == nullptr) return report.WrongType(given, "a table of numbers");
    std::map<std::string, double> weights;
    for (const auto& [name, source, value] : *table) {
      const int64_t* whole = value.As<int64_t>();
      const double* real = value.As<double>();
      if (whole == nullptr && real == nullptr) {
        report.WrongType(value, "a number");
        continue;
      }
      const double weight =
          real != nullptr ? *real : static_cast<double>(*whole);
      // Whatever compares with NaN is false.
      if (!(weight >= 0 && weight <= kMaxWeight)) {
        report.Error(value.source,
                     absl::StrFormat("%s is out of range: at least 0.0, at "
                                     "most %s",
                                     ToToml(value), ToToml(Value(kMaxWeight))));
        continue;
      }
      weights[name] = weight;
    }
    if (table->empty()) report.Error(given.source, "names no source");
    *blend = weights;
  };
  field.write = [=]() -> std::optional<Value> {
    if (blend->empty()) return std::nullopt;
    Table table;
    for (const auto& [name, weight] : *blend) {
      Member& member = table.emplace_back();
      member.key = name;
      member.value = Value(weight);
    }
    return Value(table);
  };
  section.Custom(field);
}

}  // namespace delink::schema
