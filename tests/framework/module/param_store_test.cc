#include "framework/module/param_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/module/binder.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/toy_model.h"

namespace delink::param_store_test {
namespace {

using testing::MakeStore;
using testing::Read;
using testing::SlabNamed;

constexpr int kBlocks = 3;

class ParamStoreTest : public ::testing::Test {
 protected:
  ParamStoreTest() { testing::DeclareToy(registry_, kBlocks, 11); }

  Param& Named(const std::string& name) {
    for (const ParamDecl& decl : registry_.decls) {
      if (decl.name == name) return *decl.param;
    }
    DELINK_CHECK(false) << name;
    std::abort();
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

TEST_F(ParamStoreTest, RefusesTwoLayersOfOneName) {
  Scope(registry_).Layer(1, "embed").Param("token/weight", {.shape = {1}});
  EXPECT_DEATH(MakeStore(*device_, registry_, kBlocks, {}), "declared twice");
}

TEST_F(ParamStoreTest, InitialisesAsDeclared) {
  const auto store = MakeStore(*device_, registry_, kBlocks, {});
  store->InitWeights(1);
  for (const float one : Read<float>(*store, SlabNamed(*store, "blocks/1/norm"),
                                     Plane::kWeight)) {
    EXPECT_TRUE(one == 1 || one == 0);
  }
  const int slab = SlabNamed(*store, "embed/embedding");
  const SlabParam& param = store->slab(slab).params.at(0);
  const auto weight = Read<float>(*store, slab, Plane::kWeight);
  double squares = 0;
  for (int64_t i = 0; i < param.elements; ++i) {
    squares += At(weight, i) * At(weight, i);
  }
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(param.elements)), 0.5,
              0.08);
}

// More than is initialised at a time: no number comes again.
TEST_F(ParamStoreTest, InitialisesLargeParametersByElement) {
  ParamRegistry registry;
  Scope(registry)
      .Layer(0, "embed")
      .Param("weight", {.shape = {1 << 10, 1 << 10}, .init = Init::Normal(1)});
  const auto store = MakeStore(*device_, registry, 0, {});
  store->InitWeights(1);
  const auto weight = Read<float>(*store, 0, Plane::kWeight);
  const std::vector<float> begin(weight.begin(), weight.begin() + 8);
  EXPECT_EQ(
      std::search(weight.begin() + 1, weight.end(), begin.begin(), begin.end()),
      weight.end());
  const RngKey key = Fold(Fold(KeyFromSeed(1), "init"), "embed/weight");
  int64_t wrong = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    wrong += weight[i] != static_cast<float>(Normal(key, i));
  }
  EXPECT_EQ(wrong, 0);
}

TEST_F(ParamStoreTest, AllocatesWhatWasAskedFor) {
  const auto store = MakeStore(*device_, registry_, kBlocks, {}, 0,
                               {.gradients = false, .states = {}});
  EXPECT_TRUE(store->has(Plane::kWeight));
  EXPECT_FALSE(store->has(Plane::kGradient));
  EXPECT_FALSE(store->has(Plane::kState0));
  EXPECT_EQ(store->bytes(Plane::kWeight), device_->bytes_in_use());
}

TEST_F(ParamStoreTest, CountsParameters) {
  const auto real = MakeStore(*device_, registry_, kBlocks, {});
  const auto pseudo =
      MakeStore(*device_, registry_, kBlocks,
                testing::ShareAll(kBlocks, {"attention", "mlp", "norm"}));
  constexpr int64_t kBlock = 11 + 33 * 11 + 33 + 121 + 25 * 11;
  constexpr int64_t kRest = 34 * 11 + 11;
  EXPECT_EQ(real->unique_parameters(), kRest + kBlocks * kBlock);
  EXPECT_EQ(pseudo->unique_parameters(), kRest + kBlock);
  EXPECT_EQ(real->virtual_parameters(), kRest + kBlocks * kBlock);
  EXPECT_EQ(pseudo->virtual_parameters(), kRest + kBlocks * kBlock);
}

TEST_F(ParamStoreTest, BindsLayersThatShareToOneSlab) {
  const auto store = MakeStore(*device_, registry_, kBlocks,
                               testing::ShareAll(kBlocks, {"attention"}));
  Binder binder(*store);
  for (const int layer : store->visited()) {
    binder.Bind(layer, nullptr);
  }
  EXPECT_EQ(Named("blocks/0/attn/qkv/weight").weight().data(),
            Named("blocks/2/attn/qkv/weight").weight().data());
  EXPECT_NE(Named("blocks/0/mlp/up").weight().data(),
            Named("blocks/2/mlp/up").weight().data());
  EXPECT_EQ(Named("embed/token/weight").weight().data(),
            Named("head/weight").weight().data());
  EXPECT_EQ(Named("blocks/1/mlp/up").shape(), Shape({25, 11}));
}

TEST_F(ParamStoreTest, TellsFirstWritesFromLaterOnes) {
  const auto store = MakeStore(*device_, registry_, kBlocks,
                               testing::ShareAll(kBlocks, {"attention"}));
  Binder binder(*store);
  std::vector<bool> written;
  for (const int slab : store->slabs_of_layer(2)) {
    written.push_back(store->slab(slab).part == "attention");
  }
  binder.Bind(2, &written);
  EXPECT_TRUE(Named("blocks/1/attn/qkv/weight").TakeGrad().accumulate);
  Param& up = Named("blocks/1/mlp/up");
  EXPECT_FALSE(up.TakeGrad().accumulate);
  EXPECT_TRUE(up.TakeGrad().accumulate) << "a second use in the same visit";
}

TEST_F(ParamStoreTest, ZeroesGradientsThatNobodyWrote) {
  const auto store = MakeStore(*device_, registry_, kBlocks, {});
  Binder binder(*store);
  const int mlp = SlabNamed(*store, "blocks/1/mlp");
  const int norm = SlabNamed(*store, "blocks/1/norm");
  const auto nine = [](int64_t) { return 9.0F; };
  testing::Write<float>(*store, mlp, Plane::kGradient, nine);
  testing::Write<float>(*store, norm, Plane::kGradient, nine);
  const std::vector<bool> written(store->slabs_of_layer(2).size(), false);
  binder.Bind(2, &written);
  Named("blocks/1/mlp/up").TakeGrad();
  binder.FinishGradients(2, *device_->NewStream());
  EXPECT_EQ(Read<float>(*store, mlp, Plane::kGradient).front(), 9.0F);
  EXPECT_THAT(Read<float>(*store, norm, Plane::kGradient),
              ::testing::Each(0.0F));
}

// Gradients that are kept in bf16 are bound as such, each at its place, and
// zeroed as others are; an op that would write f32 there is stopped.
TEST_F(ParamStoreTest, BindsGradientsOfBf16) {
  const auto store = MakeStore(*device_, registry_, kBlocks, {}, 0,
                               {.dtype = DType::kBF16, .bf16_gradients = true});
  Binder binder(*store);
  EXPECT_EQ(store->dtype(0, Plane::kGradient), DType::kBF16);
  EXPECT_EQ(store->bytes(Plane::kGradient), store->bytes(Plane::kWeight));
  const int norm = SlabNamed(*store, "blocks/1/norm");
  testing::Write<BFloat16>(*store, norm, Plane::kGradient,
                           [](int64_t) { return BFloat16(9); });
  const std::vector<bool> written(store->slabs_of_layer(2).size(), false);
  binder.Bind(2, &written);
  for (const LogicalTensor& t : store->layout().tensors()) {
    if (t.name != "blocks/1/mlp/up") continue;
    EXPECT_EQ(Named(t.name).TakeGradAsKept().value.data(),
              store->at(t.slab, Plane::kGradient, t.offset));
  }
  binder.FinishGradients(2, *device_->NewStream());
  for (const BFloat16 g : Read<BFloat16>(*store, norm, Plane::kGradient)) {
    EXPECT_EQ(g.bits, 0);
  }
  EXPECT_DEATH(Named("blocks/1/mlp/up").TakeGrad(), "kept in bf16");
}

// A head tied to one of two parameters of a part: the other one's gradient is
// last step's until the head's backward, the first of the slab, clears it.
TEST_F(ParamStoreTest, ZeroesGradientsThatOnlyOtherLayersWrite) {
  ParamRegistry registry;
  const Scope embed = Scope(registry).Layer(0, "embed");
  embed.Param("token", {.shape = {5, 3}});
  embed.Param("position", {.shape = {4, 3}});
  (Scope(registry).Layer(1, "") / "head").Link("embed/token");
  const auto store = MakeStore(*device_, registry, 0, {});
  Binder binder(*store);
  const int slab = SlabNamed(*store, "embed/other");
  const int64_t position = store->slab(slab).params.at(1).offset;
  const auto after = [&](bool head_is_first) {
    testing::Write<float>(*store, slab, Plane::kGradient,
                          [](int64_t) { return 9.0F; });
    const std::vector<bool> written = {!head_is_first};
    binder.Bind(1, &written);
    registry.decls.back().param->TakeGrad();
    binder.FinishGradients(1, *device_->NewStream());
    return Read<float>(*store, slab, Plane::kGradient);
  };
  const std::vector<float> cleared = after(true);
  EXPECT_EQ(cleared[0], 9.0F);
  EXPECT_EQ(At(cleared, position), 0.0F);
  EXPECT_EQ(At(cleared, position + 11), 0.0F);
  const std::vector<float> kept = after(false);
  EXPECT_EQ(At(kept, position), 9.0F);
}

// An epilogue without parameters is a layer all the same.
TEST_F(ParamStoreTest, CountsLayersWithoutParameters) {
  ParamRegistry registry;
  Scope(registry).Layer(0, "embed").Param("weight", {.shape = {5, 3}});
  const auto store = MakeStore(*device_, registry, 1, {});
  EXPECT_EQ(store->visited().size(), 3u);
  EXPECT_TRUE(store->slabs_of_layer(2).empty());
}

TEST_F(ParamStoreTest, ReportsWhatDoesNotFit) {
  ParamRegistry huge;
  Scope(huge)
      .Layer(0, "embed")
      .Param("weight", {.shape = {int64_t{1} << 28, int64_t{1} << 28}});
  const auto store =
      ParamStore::Create(*device_, Layout::Create(huge, 0, {}, {}), 0, {});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(store.status().message()),
              ::testing::HasSubstr("parameters of embed/other"));
}

TEST_F(ParamStoreTest, StandsOnMetaWithoutMemory) {
  const auto meta = NewMetaDevice();
  ParamRegistry large;
  testing::DeclareToy(large, 48, 4096);
  const auto store = MakeStore(*meta, large, 48, {});
  store->InitWeights(1);
  EXPECT_GT(store->bytes(Plane::kWeight), int64_t{48} * 4096 * 4096 * 4);
}

}  // namespace
}  // namespace delink::param_store_test
