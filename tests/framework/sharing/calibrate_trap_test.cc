// What the state policies do to the steps after a switch, by running AdamW on
// gradients whose moments are known: `copy` stalls, `scale` overshoots where
// gradients are clipped or layers disagree, `calibrated` goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "framework/base/rng.h"
#include "framework/comm/self_communicator.h"
#include "framework/optim/adamw.h"
#include "framework/sharing/calibrate.h"
#include "framework/sharing/delink.h"
#include "tests/framework/module/toy_model.h"

namespace delink::calibrate_trap_test {
namespace {

constexpr int kLayers = 48;
constexpr int64_t kElements = 64;
constexpr int kBatches = 8;

// Layers whose gradients have a common part, constant in time, and noise of
// their own; both of size 1 an element.
struct Gradients {
  double agreement = 1;  // of the square, the common part's share

  double At(int64_t step, int layer, int64_t i) const {
    const double common = i % 2 == 0 ? 1 : -1;
    const RngKey key = Fold(Fold(KeyFromSeed(8), static_cast<uint64_t>(step)),
                            static_cast<uint64_t>(layer));
    const double noise =
        agreement < 1 ? Normal(key, static_cast<uint64_t>(i)) : 0;
    return std::sqrt(agreement) * common + std::sqrt(1 - agreement) * noise;
  }
};

class CalibrateTrapTest : public ::testing::Test {
 protected:
  CalibrateTrapTest() {
    for (int i = 0; i < kLayers; ++i) {
      Scope(registry_)
          .Layer(i + 1, "blocks/" + std::to_string(i))
          .Part("mlp")
          .Param("up", {.shape = {kElements}});
    }
  }

  std::unique_ptr<ParamStore> Store(const SharingMap& sharing) {
    return testing::MakeStore(*device_, registry_, kLayers, sharing, 0,
                              {.dtype = DType::kF64});
  }

  // Writes the gradients of a step, each slab's the sum over its layers.
  void SetGradients(ParamStore& store, const Gradients& gradients,
                    int64_t step) {
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      testing::Write<double>(store, static_cast<int>(s), Plane::kGradient,
                             [&](int64_t i) {
                               double sum = 0;
                               for (const int layer : store.slabs()[s].layers) {
                                 sum += gradients.At(step, layer, i);
                               }
                               return sum;
                             });
    }
  }

  // One update of every slab; the root mean square of what weights moved by.
  double Step(ParamStore& store, double clip) {
    double norm = 0;
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      for (const double g :
           testing::Read<double>(store, static_cast<int>(s), Plane::kGradient))
        norm += g * g;
    }
    const UpdateControl control{
        .lr = 1,
        .clip_factor =
            clip > 0 ? std::min(1.0, clip / (std::sqrt(norm) + 1e-6)) : 1.0};
    double moved = 0;
    const auto stream = device_->NewStream();
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      testing::Write<double>(store, slab, Plane::kWeight,
                             [](int64_t) { return 0.0; });
      optimizer_->Update(*stream, store, slab, &control, ++store.updates()[s]);
      for (const double w : testing::Read<double>(store, slab, Plane::kWeight))
        moved += w * w;
    }
    return std::sqrt(moved / static_cast<double>(kElements) /
                     static_cast<double>(store.slabs().size()));
  }

  // The steps after a switch, over those that never having shared would end
  // in: [i] is step i + 1.
  std::vector<double> Steps(StatePolicy policy, const Gradients& gradients,
                            double clip, int count) {
    constexpr int64_t kBefore = 6000;  // several times AdamW's memory
    const auto pseudo = Store(testing::ShareAll(kLayers, {"mlp"}));
    for (int64_t step = 1; step <= kBefore; ++step) {
      // A sum over layers, without drawing every summand.
      const double n = kLayers;
      const double own = std::sqrt(n * (1 - gradients.agreement));
      const RngKey key =
          Fold(Fold(KeyFromSeed(9), "sum"), static_cast<uint64_t>(step));
      testing::Write<double>(*pseudo, 0, Plane::kGradient, [&](int64_t i) {
        const double common = i % 2 == 0 ? n : -n;
        return std::sqrt(gradients.agreement) * common +
               own * Normal(key, static_cast<uint64_t>(i));
      });
      Step(*pseudo, clip);
    }
    const auto real = Store({});
    SelfCommunicator self;
    DELINK_CHECK(Delink(*pseudo, *real, policy, self).ok());
    if (policy == StatePolicy::kCalibrated) {
      Calibration calibration = Calibration::Create(
          *real,
          *RelationOf(registry_, kLayers, pseudo->sharing(), real->sharing()),
          clip);
      for (int k = 1; k <= kBatches; ++k) {
        SetGradients(*real, gradients, 100000 + k);
        DELINK_CHECK(calibration.AddBatch(*real, 1, self).ok());
      }
      DELINK_CHECK(calibration.Apply(*real, self).ok());
    }
    const double normal = LongRun(gradients);
    std::vector<double> steps;
    for (int step = 1; step <= count; ++step) {
      SetGradients(*real, gradients, step);
      steps.push_back(Step(*real, clip) / normal);
    }
    return steps;
  }

  // What AdamW's steps are in the long run: m over sqrt(v) of a constant and
  // noise, v being the mean square, 1.
  static double LongRun(const Gradients& gradients) {
    const double noise = (1 - 0.9) / (1 + 0.9) * (1 - gradients.agreement);
    return std::sqrt(gradients.agreement + noise);
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
  std::unique_ptr<SlabOptimizer> optimizer_ =
      NewAdamW({.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0});
};

double Largest(const std::vector<double>& steps) {
  return *std::max_element(steps.begin(), steps.end());
}
double Smallest(const std::vector<double>& steps) {
  return *std::min_element(steps.begin(), steps.end());
}

// Layers that agree and are clipped always: the whole norm of the shared
// gradient is sqrt(48) times the real model's, so what was stored is that much
// smaller than `scale` takes it for.
TEST_F(CalibrateTrapTest, UnderClippingScaleOvershootsAndCalibratedDoesNot) {
  const Gradients agree{.agreement = 1};
  const auto copy = Steps(StatePolicy::kCopy, agree, 1, 1000);
  const auto scale = Steps(StatePolicy::kScale, agree, 1, 200);
  const auto calibrated = Steps(StatePolicy::kCalibrated, agree, 1, 1000);
  EXPECT_LT(Smallest(copy), 0.2);
  EXPECT_NEAR(Largest(scale), 4.46, 0.01);
  EXPECT_GT(scale[199], 2);
  EXPECT_NEAR(Largest(calibrated), 1, 1e-4);
  EXPECT_NEAR(Smallest(calibrated), 1, 1e-4);
}

TEST_F(CalibrateTrapTest, WithoutClippingBothAreExactWhereLayersAgree) {
  const Gradients agree{.agreement = 1};
  EXPECT_LT(Smallest(Steps(StatePolicy::kCopy, agree, 0, 200)), 0.025);
  for (const StatePolicy policy :
       {StatePolicy::kScale, StatePolicy::kCalibrated}) {
    const auto steps = Steps(policy, agree, 0, 200);
    EXPECT_NEAR(Largest(steps), 1, 1e-6);
    EXPECT_NEAR(Smallest(steps), 1, 1e-6);
  }
}

// rho, the agreement as sharing sees it, is near `agreement` here: `scale`
// overshoots by 1 / sqrt(rho), at most sqrt(48), as m follows v's error.
TEST_F(CalibrateTrapTest, WhereLayersDisagreeScaleOvershootsToo) {
  for (const double clip : {0.0, 1.0}) {
    const auto some = Steps(StatePolicy::kScale, {.agreement = 0.3}, clip, 30);
    EXPECT_GT(Largest(some), clip > 0 ? 4 : 1.7);
    EXPECT_LT(Largest(some), clip > 0 ? 5 : 1.9);
    const auto none = Steps(StatePolicy::kScale, {.agreement = 0}, clip, 30);
    EXPECT_GT(Largest(none), 5);
    for (const double agreement : {0.3, 0.0}) {
      const Gradients gradients{.agreement = agreement};
      EXPECT_LT(Smallest(Steps(StatePolicy::kCopy, gradients, clip, 100)), 0.2);
      const auto steps = Steps(StatePolicy::kCalibrated, gradients, clip, 200);
      EXPECT_LT(Largest(steps), 1.1);
      // Where nothing is common the old momentum points nowhere, and takes a
      // few steps to be a layer's own.
      EXPECT_GT(steps[0], agreement > 0 ? 0.9 : 0.4);
      EXPECT_GT(*std::min_element(steps.begin() + 1, steps.end()), 0.5);
      EXPECT_GT(*std::min_element(steps.begin() + 10, steps.end()), 0.9);
    }
  }
}

}  // namespace
}  // namespace delink::calibrate_trap_test
