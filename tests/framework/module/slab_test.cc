#include "framework/module/slab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "framework/base/at.h"
#include "tests/framework/module/toy_model.h"

namespace delink::slab_test {
namespace {

using ::testing::ElementsAre;

constexpr int kBlocks = 4;

class SlabTest : public ::testing::Test {
 protected:
  SlabTest() { testing::DeclareToy(registry_, kBlocks, 7); }

  std::vector<std::string> Names(const SharingMap& sharing) const {
    std::vector<std::string> names;
    for (const Slab& slab : LayOutSlabs(registry_, kBlocks, sharing)) {
      names.push_back(slab.name);
    }
    return names;
  }

  ParamRegistry registry_;
};

TEST_F(SlabTest, SharedPartsHaveOneSlab) {
  EXPECT_THAT(Names(testing::ShareAll(kBlocks, {"attention", "mlp"})),
              ElementsAre("embed/embedding", "blocks/0/attention",
                          "blocks/0/mlp", "blocks/0/norm", "blocks/1/norm",
                          "blocks/2/norm", "blocks/3/norm", "other"));
  EXPECT_EQ(Names({}).size(), 2u + 3 * kBlocks);
}

TEST_F(SlabTest, KnowsWhichLayersUseIt) {
  SharingMap cycle;
  cycle.leaders["mlp"] = {0, 1, 0, 1};
  for (const Slab& slab : LayOutSlabs(registry_, kBlocks, cycle)) {
    if (slab.name == "blocks/0/mlp") {
      EXPECT_THAT(slab.layers, ElementsAre(1, 3));
    } else if (slab.name == "blocks/1/mlp") {
      EXPECT_THAT(slab.layers, ElementsAre(2, 4));
    } else if (slab.name == "embed/embedding") {
      EXPECT_THAT(slab.layers, ElementsAre(0, kBlocks + 1)) << "the tied head";
    } else {
      EXPECT_EQ(slab.layers.size(), 1u) << slab.name;
    }
  }
}

TEST_F(SlabTest, ParametersDoNotOverlap) {
  for (const Slab& slab : LayOutSlabs(registry_, kBlocks, {})) {
    int64_t end = 0;
    for (const SlabParam& param : slab.params) {
      EXPECT_GE(param.offset, end);
      EXPECT_EQ(param.offset % 64, 0);
      end = param.offset + param.elements;
    }
    EXPECT_LE(end, slab.elements);
  }
}

TEST_F(SlabTest, ListsLogicalTensors) {
  SharingMap groups;
  groups.leaders["attention"] = {0, 0, 2, 2};
  const std::vector<Slab> slabs = LayOutSlabs(registry_, kBlocks, groups);
  std::map<std::string, LogicalTensor> tensors;
  std::set<std::string> seen;
  for (const LogicalTensor& tensor :
       LogicalTensors(registry_, kBlocks, groups, slabs)) {
    EXPECT_TRUE(seen.insert(tensor.name).second) << tensor.name;
    EXPECT_TRUE(tensor.link.empty() || seen.count(tensor.link) == 1)
        << tensor.name << " before " << tensor.link;
    tensors[tensor.name] = tensor;
  }
  EXPECT_EQ(tensors.size(), registry_.decls.size());
  const LogicalTensor& shared = tensors.at("blocks/3/attn/qkv/weight");
  EXPECT_EQ(shared.link, "blocks/2/attn/qkv/weight");
  EXPECT_FALSE(shared.permanent);
  const LogicalTensor& leader = tensors.at("blocks/2/attn/qkv/weight");
  EXPECT_EQ(leader.link, "");
  EXPECT_EQ(leader.slab, shared.slab);
  EXPECT_EQ(leader.offset, shared.offset);
  EXPECT_EQ(At(slabs, leader.slab).name, "blocks/2/attention");
  EXPECT_EQ(tensors.at("blocks/3/mlp/up").link, "");
  EXPECT_EQ(tensors.at("head/weight").link, "embed/token/weight");
  EXPECT_TRUE(tensors.at("head/weight").permanent);
}

}  // namespace
}  // namespace delink::slab_test
