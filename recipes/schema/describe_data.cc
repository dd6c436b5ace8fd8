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
           {.doc = "name of the source in `blend`, logs and metrics; must be "
                   "unique",
            .required = true});
  s.Path("train", &source.train,
         {.doc = "the corpus to train on", .required = true});
  s.Path("validation", &source.validation,
         {.doc = "the corpus to validate on",
          .when_omitted = "`validation` beside `train` if it exists, else "
                          "none"});
  s.Float("weight", &source.weight,
          {.doc = "share of the batches that this source supplies, relative to "
                  "the weights of the others",
           .min = 0.0,
           .max = kMaxWeight});
  s.Bool(
      "repeat", &source.repeat,
      {.doc = "`data.repeat` for this source", .when_omitted = "data.repeat"});
}

}  // namespace

void DescribeData(Section& s, DataConfig& data) {
  s.Path("train", &data.train,
         {.doc = "the training corpus: a folder that `delink data build` wrote "
                 "(or `train` in it), relative to the recipe. For several "
                 "corpora use `[[data.source]]` instead",
          .required = !s.Has("source")});
  s.Path("validation", &data.validation,
         {.doc = "the corpus to validate on",
          .when_omitted = "`validation` beside `train`"});
  s.Int(
      "seq", &data.seq,
      {.doc = "tokens per sequence", .fixed = true, .min = 1, .max = kMaxSeq});
  s.Int("batch", &data.batch,
        {.doc = "sequences per optimizer step over all ranks, a multiple of "
                "data ranks x micro_batch",
         .required = true,
         .fixed = true,
         .min = 1,
         .max = kMaxSequences});
  s.Int("validation_batches", &data.validation_batches,
        {.doc = "batches per validation", .min = 1, .max = kMaxSteps});
  s.Bool("shuffle", &data.shuffle,
         {.doc = "read the sequences in a random order, drawn from run.seed",
          .fixed = true});
  s.Enum("documents", &data.documents, Word,
         {.doc = "how a sequence treats its documents. packed: as one text; "
                 "masked: separately: attention does not cross the end of a "
                 "document, positions restart, and the first token of the next "
                 "document is not predicted",
          .fixed = true});
  s.Bool("repeat", &data.repeat,
         {.doc = "true: when a corpus ends, read it again in another order. "
                 "false: it leaves the blend, the others keep their "
                 "proportions, and the run ends with the last corpus"});
  s.SubTables<DataSource>(
      "source",
      {.doc = "The corpora of a blend, instead of `data.train`. All must use "
              "the same tokenizer."},
      &data.sources, DescribeSource);
  for (const char* key : {"train", "validation"}) {
    if (s.Has("source") && s.Has(key)) {
      s.Error(key,
              "the recipe has [[data.source]] tables; set this key in them and "
              "leave it out here");
    }
  }
}

void BlendKey(Section& section, std::map<std::string, double>* blend) {
  Field field;
  field.name = "blend";
  field.type = "table of numbers by source, each at least 0";
  field.doc =
      "weights of the sources from this stage on: `{ web = 1, code = 2 }`; "
      "sources that are not listed have weight 0";
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
