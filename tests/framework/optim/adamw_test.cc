#include "framework/optim/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/optim/find_kernels.h"
#include "tests/framework/module/toy_model.h"
#include "tests/framework/optim/adamw_forms.h"

namespace delink::adamw_test {
namespace {

using testing::AdamWForms;
using testing::MakeStore;
using testing::Read;
using testing::SlabNamed;
using testing::Write;

constexpr int kBlocks = 2;
constexpr int64_t kWidth = 37;
constexpr AdamWConfig kConfig = {
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1};

// The gradient of element i in step t.
double Gradient(int64_t t, int64_t i) {
  return 0.1 * Normal(Fold(KeyFromSeed(3), static_cast<uint64_t>(t)),
                      static_cast<uint64_t>(i));
}

class AdamWTest : public ::testing::Test {
 protected:
  AdamWTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  std::unique_ptr<ParamStore> Store(DType dtype) {
    auto store =
        MakeStore(*device_, registry_, kBlocks, {}, 0, {.dtype = dtype});
    store->InitWeights(1);
    return store;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
  std::unique_ptr<SlabOptimizer> optimizer_ = NewAdamW(kConfig);
};

// The paper's algorithm 2 in plain double.
struct Statement {
  std::vector<double> p, m, v;
  void Step(int64_t t, int64_t i, double g, double lr, double decay) {
    const auto at = static_cast<size_t>(i);
    m[at] = kConfig.beta1 * m[at] + (1 - kConfig.beta1) * g;
    v[at] = kConfig.beta2 * v[at] + (1 - kConfig.beta2) * g * g;
    const auto n = static_cast<double>(t);
    const double mean = m[at] / (1 - std::pow(kConfig.beta1, n));
    const double square = v[at] / (1 - std::pow(kConfig.beta2, n));
    p[at] -= lr * (mean / (std::sqrt(square) + kConfig.eps) + decay * p[at]);
  }
};

template <typename T>
double WorstError(ParamStore& store, SlabOptimizer& optimizer, Device& device) {
  const int slab = SlabNamed(store, "blocks/1/attention");
  const auto start = Read<T>(store, slab, Plane::kWeight);
  Statement plain{.p = {start.begin(), start.end()},
                  .m = std::vector<double>(start.size()),
                  .v = std::vector<double>(start.size())};
  for (int64_t t = 1; t <= 50; ++t) {
    const UpdateControl control{.lr = 1e-3 * static_cast<double>(t % 7 + 1),
                                .clip_factor = 0.125};
    Write<T>(store, slab, Plane::kGradient,
             [t](int64_t i) { return static_cast<T>(Gradient(t, i)); });
    for (const SlabParam& param : store.slab(slab).params) {
      const bool decays = store.registry().decl(param.decl).spec.decay;
      for (int64_t i = param.offset; i < param.offset + param.elements; ++i) {
        plain.Step(t, i, 0.125 * static_cast<T>(Gradient(t, i)), control.lr,
                   decays ? kConfig.decay : 0);
      }
    }
    optimizer.Update(*device.NewStream(), store, slab, &control, t);
  }
  const auto end = Read<T>(store, slab, Plane::kWeight);
  double worst = 0, moved = 0;
  for (size_t i = 0; i < end.size(); ++i) {
    worst = std::max(worst, std::abs(end[i] - plain.p[i]));
    moved = std::max(moved, std::abs(plain.p[i] - start[i]));
  }
  EXPECT_GT(moved, 0.02);
  return worst;
}

TEST_F(AdamWTest, IsTheAlgorithmInDouble) {
  const auto store = Store(DType::kF64);
  EXPECT_LT(WorstError<double>(*store, *optimizer_, *device_), 1e-14);
}

TEST_F(AdamWTest, IsTheAlgorithmInFloat) {
  const auto store = Store(DType::kF32);
  // Fifty roundings of weights near 1, and of steps of up to 7e-3.
  EXPECT_LT(WorstError<float>(*store, *optimizer_, *device_), 3e-6);
}

// By hand, lr 0.1, decay 0.1, one step from p = 1, g = 0.5:
// p * 0.99 - 0.1 * 0.5 / (0.5 + 1e-8).
TEST_F(AdamWTest, FirstStepIsTheLearningRate) {
  float p = 1, g = 0.5F, m = 0, v = 0;
  const UpdateControl control{.lr = 0.1, .clip_factor = 1};
  FindOptimKernels(DeviceKind::kCpu, DType::kF32)
      ->adamw(*device_->NewStream(), {.p = &p,
                                      .g = &g,
                                      .m = &m,
                                      .v = &v,
                                      .n = 1,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .eps = 1e-8,
                                      .decay = 0.1,
                                      .update = 1,
                                      .control = &control});
  EXPECT_NEAR(p, 0.89, 1e-7);
  EXPECT_NEAR(m, 0.05, 1e-8);
  EXPECT_NEAR(v, 0.00025, 1e-10);
}

TEST_F(AdamWTest, DecaysWhatWasDeclaredSo) {
  const auto store = Store(DType::kF32);
  const int attention = SlabNamed(*store, "blocks/0/attention");
  Write<float>(*store, attention, Plane::kWeight, [](int64_t) { return 1.0F; });
  const UpdateControl control{.lr = 0.5, .clip_factor = 1};
  // The gradient is zero, so that only decay moves.
  optimizer_->Update(*device_->NewStream(), *store, attention, &control, 1);
  const auto weight = Read<float>(*store, attention, Plane::kWeight);
  for (const SlabParam& param : store->slab(attention).params) {
    const ParamDecl& decl = registry_.decl(param.decl);
    for (int64_t i = 0; i < param.elements; ++i) {
      ASSERT_EQ(At(weight, param.offset + i), decl.spec.decay ? 0.95F : 1.0F)
          << decl.name;
    }
  }
}

// Without weights to round; with them and in other forms: host_update_test.
TEST(AdamWKernelTest, EveryInstructionSetAndCutGivesTheSameBits) {
  const UpdateControl control{.lr = 0.01, .clip_factor = 0.7};
  const auto run = [&](int set, AdamWForms& planes, int64_t begin,
                       int64_t end) {
    AdamWArgs args = planes.Args(begin, end, &control);
    args.w = nullptr;
    return cpu::AdamWF32With(set, args);
  };
  for (const int64_t n : {1, 7, 16, 17, 1009, 16385, 50021}) {
    const AdamWForms start({}, n);
    AdamWForms expected = start;
    ASSERT_TRUE(run(0, expected, 0, n));
    EXPECT_FALSE(expected.SameAs(start));
    for (const int set : {0, 1, 2}) {
      for (const int64_t cut : {int64_t{0}, int64_t{1}, n / 3, n / 2 + 1}) {
        AdamWForms planes = start;
        if (!run(set, planes, 0, cut)) break;
        run(set, planes, cut, n);
        ASSERT_TRUE(planes.SameAs(expected))
            << n << " elements cut at " << cut << ", instructions " << set;
      }
    }
  }
}

TEST_F(AdamWTest, MetaOnlyListens) {
  const auto meta = NewMetaDevice();
  const auto store = MakeStore(*meta, registry_, kBlocks, {});
  optimizer_->Update(*meta->NewStream(), *store, 0, nullptr, 1);
  EXPECT_EQ(optimizer_->states().size(), 2U);
}

}  // namespace
}  // namespace delink::adamw_test
