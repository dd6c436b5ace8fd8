// `offload` of a stage.
#include <optional>
#include <string_view>
#include <vector>

#include "recipes/schema/describe.h"

namespace delink::schema {

// What a person may write; the disk comes with a later version.
static std::string_view Word(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "";
  }
  return "";
}

namespace {

void DescribeWishes(Section& s, OffloadWishes& wishes) {
  s.Enum("weights", &wishes.weights, Word,
         {.doc = "where weights are when nobody works on them: the host's are "
                 "copied to the device for each layer that comes",
          .when_omitted = "`\"device\"`; with `resident` `\"host\"`"});
  s.Enum("gradients", &wishes.gradients, Word,
         {.doc = "the same of gradients: the host's are copied there when a "
                 "layer is through",
          .when_omitted = "`\"device\"`; with `resident` `\"host\"`"});
  s.Enum("state", &wishes.state, Word,
         {.doc = "the same of the optimizer's state, the master among it",
          .when_omitted = "`\"device\"`; with `resident` `\"host\"`"});
  s.Enum("update", &wishes.update, Word,
         {.doc = "who updates: the device, to which state comes for it, or the "
                 "host, where state, weights and gradients then are, whatever "
                 "has copies on the device besides",
          .when_omitted = "`\"device\"`"});
}

}  // namespace

void DescribeOffload(Section& s, OffloadRules& offload) {
  DescribeWishes(s, offload.all);
  s.Float("resident", &offload.resident,
          {.doc = "share of the blocks that is on the device with weights, "
                  "gradients and state, spread evenly; the others are where "
                  "the keys above say",
           .min = 0.0,
           .max = 1.0});
  s.SubTables<OffloadRow>(
      "rows",
      {.doc = "What slabs with parameters of some names have otherwise; of "
              "those that match the first that says something of a key "
              "counts."},
      &offload.rows, [](Section& t, OffloadRow& row) {
        t.String("match", &row.match,
                 {.doc = "names of parameters as checkpoints have them "
                         "(`blocks/3/attn/qkv/weight`): `*` stands for any "
                         "characters, `?` for one, `[ab]` for one of some",
                  .required = true});
        DescribeWishes(t, row.wishes);
      });
}

}  // namespace delink::schema
