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

// Bytes as a value that reads back equal.
Value ByteValue(int64_t bytes) {
  for (const ByteUnit& of : kByteUnits) {
    const int64_t unit = int64_t{1} << of.shift;
    if (bytes % unit == 0) return Value(absl::StrCat(bytes / unit, of.name));
  }
  return Value(bytes);
}

}  // namespace

void BytesKey(Section& s, std::string_view name, std::optional<int64_t>* bytes,
              const Key& key) {
  Field field;
  field.name = std::string(name);
  field.type = "a size as \"20GiB\" (KiB, MiB, GiB or TiB), or bytes";
  field.doc = std::string(key.doc);
  field.required = key.required;
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

namespace {

void DescribeWishes(Section& s, OffloadWishes& wishes) {
  constexpr std::string_view kOmitted =
      "`\"device\"`; with `resident` `\"host\"` for blocks; with `device` "
      "`\"auto\"`";
  s.Enum("weights", &wishes.weights, Word,
         {.doc = "placement of weights; host-resident weights are prefetched "
                 "before each layer that needs them",
          .when_omitted = kOmitted});
  s.Enum("gradients", &wishes.gradients, Word,
         {.doc = "placement of gradients; host-resident gradients are evicted "
                 "when a layer is finished",
          .when_omitted = kOmitted});
  s.Enum("state", &wishes.state, Word,
         {.doc = "placement of optimizer state, including the master",
          .when_omitted = kOmitted});
  s.Enum("update", &wishes.update, Word,
         {.doc = "where updates run. device: host-resident state is fetched "
                 "for the update; host: state, weights and gradients are "
                 "host-resident, also those of embedding and head, and "
                 "`\"device\"` above keeps additional copies of weights and "
                 "gradients on the device; auto: slabs with host-resident "
                 "state are updated by the faster side, or divided between "
                 "both",
          .when_omitted = "`\"device\"`, with `device` `\"auto\"`"});
  s.Enum("activations", &wishes.activations, Word,
         {.doc = "placement of what a block's forward saves for its backward; "
                 "host-resident activations are prefetched one layer ahead. A "
                 "block's activations are on the host if those of one of its "
                 "slabs are. `\"auto\"` may recompute the block instead, "
                 "unless `recompute` is `none`",
          .when_omitted = "`\"device\"`, with `device` `\"auto\"`"});
}

// Only a budget says how much to move to the host.
void CheckOpen(Section& s, const OffloadWishes& wishes, bool budget) {
  const auto check = [&](const char* key, const std::optional<Home>& wish) {
    if (wish != Home::kAuto || budget) return;
    s.Error(key,
            "\"auto\" needs a budget: set offload.device, the bytes of device "
            "memory that a rank may use, or give \"device\" or \"host\" here");
  };
  check("weights", wishes.weights);
  check("gradients", wishes.gradients);
  check("state", wishes.state);
  check("activations", wishes.activations);
}

}  // namespace

void DescribeOffload(Section& s, OffloadRules& offload) {
  BytesKey(
      s, "device", &offload.device,
      {.doc =
           "device budget of a rank for everything in its memory account; "
           "`\"auto\"` planes are moved to the host until the account fits"});
  BytesKey(s, "host", &offload.host,
           {.doc = "host memory budget of a machine for the host-resident data "
                   "of all its ranks"});
  DescribeWishes(s, offload.all);
  s.Float("resident", &offload.resident,
          {.doc = "share of the blocks' parameters that stays on the device "
                  "with gradients and state, and is updated there. It counts "
                  "slabs, spread evenly, so a block can be "
                  "[split](offloading.md#resident). The other slabs of blocks, "
                  "and embedding and head, follow the keys above. Not with "
                  "`device`",
           .min = 0.0,
           .max = 1.0});
  s.SubTables<OffloadRow>(
      "rows",
      {.doc = "Settings for slabs with parameters of matching names. For each "
              "key the first matching row that sets it counts."},
      &offload.rows, [&offload](Section& t, OffloadRow& row) {
        t.String("match", &row.match,
                 {.doc = "parameter names as in checkpoints "
                         "(`blocks/3/attn/qkv/weight`): `*` matches any "
                         "characters, `?` one character, `[ab]` one of the "
                         "listed characters",
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
            "offload.device also decides how much stays on the device; give "
            "only one of the two");
  }
}

}  // namespace delink::schema
