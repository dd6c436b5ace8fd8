// SGD, Lion, Muon and Adafactor on the CPU over stores: what tests/oracle does
// not show. Shards, skipping, delinking.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/optim/find_kernels.h"
#include "framework/optim/muon.h"
#include "framework/tensor/bfloat16.h"
#include "layers/ops/matrix_product.h"
#include "tests/framework/module/toy_model.h"
#include "tests/framework/optim/optimizer_kinds.h"

namespace delink::rules_test {
namespace {

using testing::kAnyHyper;
using testing::kOptimizerKinds;
using testing::MakeStore;
using testing::OptimizerKind;
using testing::Read;
using testing::SlabNamed;
using testing::Write;

constexpr int kBlocks = 2;
constexpr int64_t kWidth = 13;

class RulesTest : public ::testing::TestWithParam<OptimizerKind> {
 protected:
  RulesTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  std::unique_ptr<ParamStore> Store(DType dtype = DType::kF32, int rank = 0,
                                    int ranks = 1,
                                    MasterForm master = MasterForm::kWhole) {
    auto store = MakeStore(*device_, registry_, kBlocks, {}, ranks > 1 ? 1 : 0,
                           {.dtype = dtype,
                            .rank = rank,
                            .ranks = ranks,
                            .states = optimizer_->states(),
                            .whole_tensors = optimizer_->whole_tensors(),
                            .master = master});
    store->InitWeights(1);
    scratch_.resize(static_cast<size_t>(optimizer_->ScratchBytes(*store)));
    optimizer_->set_scratch(scratch_.data());
    return store;
  }

  // `factor`: of every gradient.
  void Step(ParamStore& store, int slab, int64_t t,
            const UpdateControl& control, double factor = 1) {
    Write<float>(store, slab, Plane::kGradient, [=](int64_t i) {
      return static_cast<float>(
          factor * Normal(Fold(KeyFromSeed(3), static_cast<uint64_t>(t)),
                          static_cast<uint64_t>(i)));
    });
    optimizer_->Update(*device_->NewStream(), store, slab, &control, t);
  }

  static std::vector<float> Weights(const ParamStore& store, int slab) {
    if (store.dtype(slab, Plane::kWeight) == DType::kF32) {
      return Read<float>(store, slab, Plane::kWeight);
    }
    const auto weights = Read<BFloat16>(store, slab, Plane::kWeight);
    return {weights.begin(), weights.end()};
  }

  std::vector<float> State(const ParamStore& store, int slab, int state,
                           size_t param) {
    const auto place = store.state(slab, state, param);
    const float* const at = static_cast<const float*>(place.values);
    return {at, at + place.held.size()};
  }

  // All of them, of all parameters, one after the other.
  std::vector<std::vector<float>> States(const ParamStore& store, int slab) {
    std::vector<std::vector<float>> all;
    for (size_t s = 0; s < store.states().size(); ++s) {
      for (size_t p = 0; p < store.slab(slab).params.size(); ++p) {
        all.push_back(State(store, slab, static_cast<int>(s), p));
      }
    }
    return all;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
  std::vector<char> scratch_;
  std::unique_ptr<SlabOptimizer> optimizer_ = GetParam().make();
};
INSTANTIATE_TEST_SUITE_P(Kinds, RulesTest, ::testing::ValuesIn(kOptimizerKinds),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

constexpr const char* kSlabs[] = {"blocks/1/attention", "blocks/0/norm",
                                  "embed/embedding"};

TEST_P(RulesTest, SkippingChangesNothing) {
  for (const char* name : kSlabs) {
    const auto store = Store();
    const int slab = SlabNamed(*store, name);
    Step(*store, slab, 1, {.lr = 0.01, .clip_factor = 1});
    const auto p = Read<float>(*store, slab, Plane::kWeight);
    const auto states = States(*store, slab);
    for (const double factor : {1.0, std::nan(""), HUGE_VAL}) {
      Step(*store, slab, 2,
           {.lr = 0.01, .clip_factor = std::nan(""), .skip = 1}, factor);
      EXPECT_EQ(Read<float>(*store, slab, Plane::kWeight), p) << name;
      EXPECT_EQ(States(*store, slab), states) << name;
    }
    Step(*store, slab, 2, {.lr = 0.01, .clip_factor = 1});
    EXPECT_NE(Read<float>(*store, slab, Plane::kWeight), p) << name;
    const auto after = States(*store, slab);
    for (size_t i = 0; i < states.size(); ++i) {
      EXPECT_TRUE(states[i].empty() || after[i] != states[i])
          << name << ", state " << i;
    }
  }
}

TEST_P(RulesTest, RanksUpdateTheBitsOfTheWholeBetweenThem) {
  const UpdateControl control = {.lr = 0.01, .clip_factor = 0.3};
  struct Form {
    DType dtype = DType::kF32;
    MasterForm master = MasterForm::kWhole;
  };
  for (const auto& [dtype, master] :
       {Form{}, Form{DType::kBF16, MasterForm::kSplit},
        Form{DType::kBF16, MasterForm::kNone}}) {
    for (const char* name : kSlabs) {
      const auto whole = Store(dtype, 0, 1, master);
      const int slab = SlabNamed(*whole, name);
      const auto start = Weights(*whole, slab);
      for (int64_t t = 1; t <= 3; ++t) Step(*whole, slab, t, control);
      const auto expected = Weights(*whole, slab);
      for (const int ranks : {2, 3}) {
        std::vector<int> updated(start.size(), 0);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto shard = Store(dtype, rank, ranks, master);
          for (int64_t t = 1; t <= 3; ++t) Step(*shard, slab, t, control);
          const Range own = shard->owned(slab);
          const auto weight = Weights(*shard, slab);
          for (int64_t i = 0; i < static_cast<int64_t>(start.size()); ++i) {
            const auto at = static_cast<size_t>(i);
            const bool mine = i >= own.begin && i < own.end;
            updated[at] += mine ? 1 : 0;
            ASSERT_EQ(weight[at], mine ? expected[at] : start[at])
                << name << " element " << i << ", rank " << rank << " of "
                << ranks << ", master " << static_cast<int>(master);
          }
        }
        EXPECT_EQ(updated, std::vector<int>(start.size(), 1));
      }
    }
  }
}

TEST_P(RulesTest, ASplitMasterHasTheBitsOfAWholeOne) {
  const UpdateControl control = {.lr = 0.01, .clip_factor = 0.3};
  const auto whole = Store(DType::kBF16);
  const auto split = Store(DType::kBF16, 0, 1, MasterForm::kSplit);
  for (const char* name : kSlabs) {
    const int slab = SlabNamed(*whole, name);
    for (int64_t t = 1; t <= 5; ++t) {
      Step(*whole, slab, t, control);
      Step(*split, slab, t, control);
    }
    const auto upper = Read<BFloat16>(*split, slab, Plane::kWeight);
    const auto lower = Read<uint16_t>(*split, slab, Plane::kLow);
    std::vector<float> master;
    for (size_t i = 0; i < upper.size(); ++i) {
      master.push_back(SplitMaster{upper[i].bits, lower[i]}.Value());
    }
    EXPECT_EQ(master, Read<float>(*whole, slab, Plane::kMaster)) << name;
    EXPECT_EQ(States(*split, slab), States(*whole, slab)) << name;
  }
}

// In bf16, with gradients that are f32 there, and whatever masters others have.
TEST_P(RulesTest, ExactSlabsAreUpdatedAsInF32) {
  const UpdateControl control = {.lr = 0.01, .clip_factor = 0.3};
  const auto f32 = Store();
  for (const char* name : kSlabs) {
    for (int64_t t = 1; t <= 3; ++t) {
      Step(*f32, SlabNamed(*f32, name), t, control);
    }
  }
  testing::MakeExact(registry_, {"attention", "norm", "embedding"});
  for (const MasterForm master :
       {MasterForm::kWhole, MasterForm::kSplit, MasterForm::kNone}) {
    const auto store = Store(DType::kBF16, 0, 1, master);
    for (const char* name : kSlabs) {
      const int slab = SlabNamed(*store, name + std::string(".exact"));
      for (int64_t t = 1; t <= 3; ++t) Step(*store, slab, t, control);
      const int same = SlabNamed(*f32, name);
      EXPECT_EQ(Read<float>(*store, slab, Plane::kWeight),
                Read<float>(*f32, same, Plane::kWeight))
          << name;
      EXPECT_EQ(States(*store, slab), States(*f32, same)) << name;
    }
  }
}

TEST_P(RulesTest, WithoutAMasterWeightsAreRoundedByNameAndPosition) {
  const UpdateControl control = {.lr = 0.01, .clip_factor = 0.3};
  const auto whole = Store(DType::kBF16);
  const auto none = Store(DType::kBF16, 0, 1, MasterForm::kNone);
  for (const char* name : kSlabs) {
    const int slab = SlabNamed(*whole, name);
    const auto start = Weights(*none, slab);
    Write<float>(*whole, slab, Plane::kMaster,
                 [&](int64_t i) { return At(start, i); });
    constexpr int64_t kUpdate = 3;
    Step(*whole, slab, kUpdate, control);
    Step(*none, slab, kUpdate, control);
    const auto exact = Read<float>(*whole, slab, Plane::kMaster);
    const auto weights = Read<BFloat16>(*none, slab, Plane::kWeight);
    int64_t apart = 0;
    for (const SlabParam& param : none->slab(slab).params) {
      const std::string& decl = registry_.decl(param.decl).name;
      const RngKey key =
          Fold(Fold(Fold(KeyFromSeed(1), "rounding"), std::string_view(decl)),
               static_cast<uint64_t>(kUpdate));
      for (int64_t i = 0; i < param.elements; ++i) {
        const auto k = static_cast<uint64_t>(i);
        const uint32_t word = Philox(key, k / 8, 0)[k % 8 / 2];
        const auto random =
            static_cast<uint16_t>(k % 2 == 0 ? word : word >> 16);
        const float value = At(exact, param.offset + i);
        ASSERT_EQ(At(weights, param.offset + i).bits,
                  RoundStochastically(value, random))
            << decl << " element " << i;
        apart += BFloat16(value).bits != At(weights, param.offset + i).bits;
      }
    }
    EXPECT_GT(apart, 0) << name;
    EXPECT_EQ(States(*none, slab), States(*whole, slab)) << name;
  }
}

// A shared gradient that is n times that of each of n layers that agree leaves
// states n or n^2 times as large, as their degree says: `scale` is exact. With
// n a power of two, bit for bit.
TEST_P(RulesTest, StatesScaleWithTheGradientAsTheirDegreesSay) {
  constexpr double kLayers = 4;
  const UpdateControl control = {.lr = 0.01, .clip_factor = 1};
  for (const char* name : kSlabs) {
    const auto apart = Store(), shared = Store();
    const int slab = SlabNamed(*apart, name);
    for (int64_t t = 1; t <= 5; ++t) {
      Step(*apart, slab, t, control);
      Step(*shared, slab, t, control, kLayers);
    }
    const size_t params = apart->slab(slab).params.size();
    for (size_t s = 0; s < apart->states().size(); ++s) {
      const double factor = std::pow(kLayers, apart->states()[s].degree);
      for (size_t p = 0; p < params; ++p) {
        std::vector<float> scaled =
            State(*shared, slab, static_cast<int>(s), p);
        for (float& value : scaled) {
          value = static_cast<float>(value / factor);
        }
        EXPECT_EQ(scaled, State(*apart, slab, static_cast<int>(s), p))
            << name << ", state " << apart->states()[s].name << " of parameter "
            << p;
      }
    }
  }
}

TEST_P(RulesTest, TheMasterGoesTheWayOfF32Weights) {
  // Newton-Schulz is in the type of the weights.
  if (GetParam().name == std::string("muon")) return;
  const UpdateControl control = {.lr = 0.01, .clip_factor = 1};
  const auto f32 = Store(), bf16 = Store(DType::kBF16);
  for (const char* name : kSlabs) {
    const int slab = SlabNamed(*f32, name);
    for (int64_t t = 1; t <= 3; ++t) {
      Step(*f32, slab, t, control);
      Step(*bf16, slab, t, control);
    }
    const auto master = Read<float>(*bf16, slab, Plane::kMaster);
    EXPECT_EQ(master, Read<float>(*f32, slab, Plane::kWeight)) << name;
    const auto weight = Read<BFloat16>(*bf16, slab, Plane::kWeight);
    for (size_t i = 0; i < master.size(); ++i) {
      ASSERT_EQ(weight[i].bits, BFloat16(master[i]).bits) << name;
    }
  }
}

// What is made orthogonal has singular values near 1, whatever they were.
TEST(MuonTest, AStepIsNearlyOrthogonal) {
  ParamRegistry registry;
  constexpr int64_t kRows = 6, kColumns = 20;
  const Scope root(registry);
  (root.Layer(1, "blocks/0") / "w")
      .Param("weight", {.shape = {kRows, kColumns}});
  const auto device = NewCpuDevice();
  const auto optimizer = NewMuon({}, ParamRules(kAnyHyper), MultiplyMatrices);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto store = MakeStore(*device, registry, 1, {}, 0,
                                 {.dtype = dtype,
                                  .states = optimizer->states(),
                                  .whole_tensors = optimizer->whole_tensors()});
    std::vector<char> scratch(
        static_cast<size_t>(optimizer->ScratchBytes(*store)));
    optimizer->set_scratch(scratch.data());
    Write<float>(*store, 0, Plane::kGradient, [](int64_t i) {
      const int64_t line = i / kColumns;
      const double row = 1 + static_cast<double>(line);
      return static_cast<float>(
          row * row * Normal(KeyFromSeed(5), static_cast<uint64_t>(i)));
    });
    const UpdateControl control = {.lr = 1, .clip_factor = 1};
    optimizer->Update(*device->NewStream(), *store, 0, &control, 1);
    // From zero: minus the step.
    const auto step = Read<float>(*store, 0, store->master(0));
    double trace = 0, off = 0;
    for (int64_t a = 0; a < kRows; ++a) {
      for (int64_t b = 0; b < kRows; ++b) {
        double dot = 0;
        for (int64_t j = 0; j < kColumns; ++j) {
          dot +=
              double{At(step, a * kColumns + j)} * At(step, b * kColumns + j);
        }
        (a == b ? trace : off) += a == b ? dot : dot * dot;
      }
    }
    // The quintic leaves singular values between 0.7 and 1.2.
    EXPECT_GT(trace / kRows, 0.45) << ToString(dtype);
    EXPECT_LT(trace / kRows, 1.5) << ToString(dtype);
    EXPECT_LT(off, 0.5 * kRows) << ToString(dtype);
  }
}

TEST(ClipValueTest, CutsWhatIsLeftOfTheClippedGradient) {
  const OptimKernels& kernels =
      *FindOptimKernels(DeviceKind::kCpu, DType::kF32);
  const std::vector<float> g = {-4.0F, -0.1F, 0.0F, 0.3F, 4.0F};
  std::vector<float> p(g.size());
  const UpdateControl control = {
      .lr = 1, .clip_value = 0.5, .clip_factor = 0.5};
  kernels.sgd(
      *NewCpuDevice()->NewStream(),
      {.params = {.p = p.data(), .g = g.data(), .n = 5, .control = &control}});
  EXPECT_EQ(p, (std::vector<float>{0.5F, 0.05F, 0.0F, -0.15F, -0.5F}));
}

}  // namespace
}  // namespace delink::rules_test
