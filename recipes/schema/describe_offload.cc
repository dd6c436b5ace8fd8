// `offload` of a stage.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "recipes/schema/describe.h"

namespace delink::schema {

// The disk comes with a later version.
static std::string_view Word(Home home) {
  switch (home) {
    case Home::kAuto:
      return "auto";
    case Home::kDevice:
      return "device";
    case Home::kHost:
      return "host";
  }
  return "";
}

namespace {

struct ByteUnit {
  const char* name;
  int shift;
};
constexpr ByteUnit kByteUnits[] = {
    {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};

// "20GiB", "1.5 TiB"; none: it is not so, or not a number of bytes that there
// may be.
std::optional<int64_t> ParseBytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string_view unit(end);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const ByteUnit& of : kByteUnits) {
    if (unit != of.name || end == text.c_str()) continue;
    const double bytes = std::ldexp(number, of.shift);
    if (!(bytes >= 1 && bytes <= 0x1p60)) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

// That reads back equal.
Value ByteValue(int64_t bytes) {
  for (const ByteUnit& of : kByteUnits) {
    const int64_t unit = int64_t{1} << of.shift;
    if (bytes % unit == 0) return Value(absl::StrCat(bytes / unit, of.name));
  }
  return Value(bytes);
}

void BytesKey(Section& s, std::string_view name, std::optional<int64_t>* bytes,
              std::string_view doc) {
  Field field;
  field.name = std::string(name);
  field.type = "a size as \"20GiB\" (KiB, MiB, GiB or TiB), or bytes";
  field.doc = std::string(doc);
  field.when_omitted = "none";
  field.read = [=](const Value& given, Report& report) {
    std::optional<int64_t> read;
    if (const std::string* text = given.As<std::string>()) {
      read = ParseBytes(*text);
    } else if (const int64_t* number = given.As<int64_t>()) {
      if (*number > 0) read = *number;
    }
    if (!read) return report.WrongType(given, "a size as \"20GiB\"");
    *bytes = read;
  };
  field.write = [=]() -> std::optional<Value> {
    if (!bytes->has_value()) return std::nullopt;
    return ByteValue(**bytes);
  };
  s.Custom(field);
}

void DescribeWishes(Section& s, OffloadWishes& wishes) {
  constexpr std::string_view kOmitted =
      "`\"device\"`; with `resident` `\"host\"`, with `device` `\"auto\"`";
  s.Enum("weights", &wishes.weights, Word,
         {.doc = "where weights are when nobody works on them: the host's are "
                 "copied to the device for each layer that comes",
          .when_omitted = kOmitted});
  s.Enum("gradients", &wishes.gradients, Word,
         {.doc = "the same of gradients: the host's are copied there when a "
                 "layer is through",
          .when_omitted = kOmitted});
  s.Enum("state", &wishes.state, Word,
         {.doc = "the same of the optimizer's state, the master among it",
          .when_omitted = kOmitted});
  s.Enum("update", &wishes.update, Word,
         {.doc = "who updates: the device, to which state comes for it, or the "
                 "host, where state, weights and gradients then are, whatever "
                 "has copies on the device besides; `\"auto\"`: of what has "
                 "its state on the host whoever is through sooner, or "
                 "both, each a part",
          .when_omitted = "`\"device\"`, with `device` `\"auto\"`"});
  s.Enum("activations", &wishes.activations, Word,
         {.doc = "where what a block's forward keeps for its backward is "
                 "meanwhile: the host's comes back a layer ahead. A block's is "
                 "where one of its slabs' is; `\"auto\"` may have it made "
                 "again instead, unless `recompute` is `none`",
          .when_omitted = "`\"device\"`, with `device` `\"auto\"`"});
}

// Only a budget says how much is to go.
void CheckOpen(Section& s, const OffloadWishes& wishes, bool budget) {
  const auto check = [&](const char* key, const std::optional<Home>& wish) {
    if (wish != Home::kAuto || budget) return;
    s.Error(key,
            "\"auto\" needs a budget: say offload.device, the bytes that a "
            "rank may have of its device, or \"device\" or \"host\" here");
  };
  check("weights", wishes.weights);
  check("gradients", wishes.gradients);
  check("state", wishes.state);
  check("activations", wishes.activations);
}

}  // namespace

void DescribeOffload(Section& s, OffloadRules& offload) {
  BytesKey(s, "device", &offload.device,
           "what a rank may have of its device, for all that its memory "
           "account has there: what is `\"auto\"` goes to the host until it "
           "fits");
  BytesKey(s, "host", &offload.host,
           "what all ranks of a machine may have of its memory together for "
           "what is at home there");
  DescribeWishes(s, offload.all);
  s.Float("resident", &offload.resident,
          {.doc = "share of the blocks that is on the device with weights, "
                  "gradients and state, spread evenly; the others are where "
                  "the keys above say; not beside `device`",
           .min = 0.0,
           .max = 1.0});
  s.SubTables<OffloadRow>(
      "rows",
      {.doc = "What slabs with parameters of some names have otherwise; of "
              "those that match the first that says something of a key "
              "counts."},
      &offload.rows, [&offload](Section& t, OffloadRow& row) {
        t.String("match", &row.match,
                 {.doc = "names of parameters as checkpoints have them "
                         "(`blocks/3/attn/qkv/weight`): `*` stands for any "
                         "characters, `?` for one, `[ab]` for one of some",
                  .required = true});
        DescribeWishes(t, row.wishes);
        if (t.complete()) {
          CheckOpen(t, row.wishes, offload.device.has_value());
        }
      });
  if (!s.complete()) return;
  CheckOpen(s, offload.all, offload.device.has_value());
  if (offload.resident && offload.device) {
    s.Error("resident",
            "how much stays is said twice: give either the share that stays, "
            "or `device`, the bytes that it may take");
  }
}

}  // namespace delink::schema
