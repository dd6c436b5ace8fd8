// A store in bf16: which planes it has, in which types, and that weights are
// the master rounded.
#include <gtest/gtest.h>

#include <vector>

#include "framework/module/binder.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/module/toy_model.h"

namespace delink::master_test {
namespace {

using testing::MakeStore;
using testing::Read;
using testing::SlabNamed;

constexpr int kBlocks = 2;

class MasterTest : public ::testing::Test {
 protected:
  MasterTest() { testing::DeclareToy(registry_, kBlocks, 11); }

  std::unique_ptr<ParamStore> Store(testing::StoreOptions options,
                                    int zero = 0) {
    return MakeStore(*device_, registry_, kBlocks, {}, zero, options);
  }
  // Whether every weight that the store has is `values` rounded.
  static void ExpectRounded(const ParamStore& store, int slab,
                            const std::vector<float>& values) {
    const auto weight = Read<BFloat16>(store, slab, Plane::kWeight);
    ASSERT_EQ(weight.size(), values.size());
    for (size_t i = 0; i < weight.size(); ++i) {
      ASSERT_EQ(weight[i].bits, BFloat16(values[i]).bits) << i;
    }
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

TEST_F(MasterTest, PlanesAndTheirTypes) {
  const auto store = Store({.dtype = DType::kBF16});
  EXPECT_EQ(store->dtype(0, Plane::kWeight), DType::kBF16);
  for (const Plane plane :
       {Plane::kGradient, Plane::kState0, Plane::kState1, Plane::kMaster}) {
    EXPECT_TRUE(store->has(plane));
    EXPECT_EQ(store->dtype(0, plane), DType::kF32);
    EXPECT_EQ(store->bytes(plane), 2 * store->bytes(Plane::kWeight));
  }
  EXPECT_EQ(store->master(0), Plane::kMaster);
  EXPECT_EQ(store->state_bytes(), 6 * store->bytes(Plane::kWeight));
  EXPECT_EQ(9 * store->bytes(Plane::kWeight), device_->bytes_in_use());
}

// Beside parts that are rounded.
TEST_F(MasterTest, ExactSlabsAreThoseOfAnF32Store) {
  const auto f32 = Store({});
  f32->InitWeights(7);
  testing::MakeExact(registry_, {"attention"});
  for (const MasterForm master :
       {MasterForm::kWhole, MasterForm::kSplit, MasterForm::kNone}) {
    const auto store = Store(
        {.dtype = DType::kBF16, .master = master, .bf16_gradients = true}, 1);
    store->InitWeights(7);
    const Plane beside =
        master == MasterForm::kSplit ? Plane::kLow : Plane::kMaster;
    const int rounded = SlabNamed(*store, "blocks/1/mlp");
    EXPECT_EQ(store->dtype(rounded, Plane::kWeight), DType::kBF16);
    EXPECT_EQ(store->dtype(rounded, Plane::kGradient), DType::kBF16);
    EXPECT_EQ(store->has(rounded, beside), master != MasterForm::kNone);
    const int slab = SlabNamed(*store, "blocks/1/attention.exact");
    EXPECT_FALSE(store->has(slab, beside));
    EXPECT_EQ(store->bytes(slab, beside), 0);
    EXPECT_EQ(store->master(slab), Plane::kWeight);
    const int same = SlabNamed(*f32, "blocks/1/attention");
    for (const Plane plane :
         {Plane::kWeight, Plane::kGradient, Plane::kState0}) {
      EXPECT_EQ(store->dtype(slab, plane), DType::kF32);
      EXPECT_EQ(store->bytes(slab, plane), f32->bytes(same, plane));
    }
    EXPECT_EQ(Read<float>(*store, slab, Plane::kWeight),
              Read<float>(*f32, same, Plane::kWeight));
  }
}

TEST_F(MasterTest, NoneWhereNoneIsWantedOrNothingIsRounded) {
  const auto bf16 = Store({.dtype = DType::kBF16,
                           .gradients = false,
                           .states = {},
                           .master = MasterForm::kNone});
  EXPECT_FALSE(bf16->has(Plane::kMaster));
  EXPECT_EQ(bf16->bytes(Plane::kWeight), device_->bytes_in_use());
  const auto f32 = Store({.dtype = DType::kF32});
  EXPECT_FALSE(f32->has(Plane::kMaster));
  EXPECT_EQ(f32->master(0), Plane::kWeight);
  EXPECT_EQ(f32->state_bytes(), 2 * f32->bytes(Plane::kWeight));
}

TEST_F(MasterTest, BeginsWithTheValuesOfF32) {
  const auto f32 = Store({});
  f32->InitWeights(5);
  const auto bf16 = Store({.dtype = DType::kBF16});
  bf16->InitWeights(5);
  const auto weights = Store({.dtype = DType::kBF16,
                              .gradients = false,
                              .states = {},
                              .master = MasterForm::kNone});
  weights->InitWeights(5);
  for (size_t s = 0; s < f32->slabs().size(); ++s) {
    const auto slab = static_cast<int>(s);
    const auto exact = Read<float>(*f32, slab, Plane::kWeight);
    EXPECT_EQ(Read<float>(*bf16, slab, Plane::kMaster), exact);
    ExpectRounded(*bf16, slab, exact);
    ExpectRounded(*weights, slab, exact);
  }
}

TEST_F(MasterTest, LayersReadBf16AndWriteF32Gradients) {
  const auto store = Store({.dtype = DType::kBF16});
  Binder binder(*store);
  const std::vector<bool> written(store->slabs_of_layer(1).size(), false);
  binder.Bind(1, &written);
  for (const ParamDecl& decl : registry_.decls) {
    if (decl.layer != 1) continue;
    EXPECT_EQ(decl.param->weight().dtype(), DType::kBF16) << decl.name;
    const Tensor gradient = decl.param->grad();
    EXPECT_EQ(gradient.dtype(), DType::kF32) << decl.name;
    EXPECT_EQ(gradient.bytes(), 2 * decl.param->weight().bytes());
  }
  // Two parameters of one slab do not overlap in either plane.
  const int slab = SlabNamed(*store, "blocks/0/attention");
  const SlabParam& second = store->slab(slab).params.at(1);
  EXPECT_EQ(static_cast<char*>(store->at(slab, Plane::kWeight, second.offset)) -
                static_cast<char*>(store->at(slab, Plane::kWeight, 0)),
            2 * second.offset);
  EXPECT_EQ(
      static_cast<char*>(store->at(slab, Plane::kGradient, second.offset)) -
          static_cast<char*>(store->at(slab, Plane::kGradient, 0)),
      4 * second.offset);
}

}  // namespace
}  // namespace delink::master_test
