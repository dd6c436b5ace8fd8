// The trap of delinking: a shared gradient is a sum over L layers, so copied
// moments make the steps collapse; scaled ones do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "framework/base/at.h"
#include "framework/comm/self_communicator.h"
#include "framework/optim/adamw.h"
#include "framework/sharing/delink.h"
#include "framework/sharing/resolve.h"
#include "tests/framework/module/toy_model.h"

namespace delink::state_trap_test {
namespace {

constexpr int kLayers = 48;

class StateTrapTest : public ::testing::Test {
 protected:
  StateTrapTest() {
    for (int i = 0; i < kLayers; ++i) {
      Scope(registry_)
          .Layer(i + 1, "blocks/" + std::to_string(i))
          .Part("mlp")
          .Param("up", {.shape = {3}});
    }
  }

  std::unique_ptr<ParamStore> Store(const SharingMap& sharing) {
    return testing::MakeStore(*device_, registry_, kLayers, sharing, 0,
                              {.dtype = DType::kF64});
  }

  // One update with gradient g on every element; returns the step it took.
  double Step(SlabOptimizer& optimizer, ParamStore& store, int slab, double g) {
    const UpdateControl control{.lr = 1, .clip_factor = 1};
    testing::Write<double>(store, slab, Plane::kGradient,
                           [g](int64_t) { return g; });
    testing::Write<double>(store, slab, Plane::kWeight,
                           [](int64_t) { return 0.0; });
    optimizer.Update(*device_->NewStream(), store, slab, &control,
                     ++At(store.updates(), slab));
    return -testing::Read<double>(store, slab, Plane::kWeight)[2];
  }

  // Trains the pseudo model until the moments have settled on L agreeing
  // layers of gradient 1, delinks, and goes on; the steps of one layer.
  std::vector<double> Steps(double beta2, StatePolicy policy, int count) {
    const auto optimizer =
        NewAdamW({.beta1 = 0.9, .beta2 = beta2, .eps = 1e-8, .decay = 0});
    const auto pseudo = Store(testing::ShareAll(kLayers, {"mlp"}));
    for (int i = 0; i < 30000; ++i) Step(*optimizer, *pseudo, 0, kLayers);
    const auto real = Store({});
    SelfCommunicator self;
    DELINK_CHECK(Delink(*pseudo, *real, policy, self).ok());
    std::vector<double> steps = {0};
    for (int i = 0; i < count; ++i) {
      steps.push_back(Step(*optimizer, *real, 17, 1));
    }
    return steps;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

struct Entry {
  size_t step;
  double relative;
  double rounding;  // half of the table's last digit
};

void ExpectTable(const std::vector<double>& steps,
                 const std::vector<Entry>& table) {
  for (const Entry& entry : table) {
    EXPECT_NEAR(steps.at(entry.step), entry.relative, entry.rounding)
        << "step " << entry.step;
  }
}

TEST_F(StateTrapTest, CopyStallsWithShortMemory) {
  ExpectTable(Steps(0.95, StatePolicy::kCopy, 1000), {{1, 0.93, 0.005},
                                                      {10, 0.47, 0.005},
                                                      {50, 0.093, 0.0005},
                                                      {100, 0.26, 0.005},
                                                      {200, 0.96, 0.005},
                                                      {1000, 1, 0.005}});
}

TEST_F(StateTrapTest, CopyStallsWithLongMemory) {
  ExpectTable(Steps(0.999, StatePolicy::kCopy, 5000), {{1, 0.90, 0.005},
                                                       {10, 0.36, 0.005},
                                                       {50, 0.027, 0.0005},
                                                       {100, 0.022, 0.0005},
                                                       {200, 0.023, 0.0005},
                                                       {1000, 0.034, 0.0005},
                                                       {5000, 0.25, 0.005}});
}

TEST_F(StateTrapTest, ScaleAndResetGoOn) {
  for (const double beta2 : {0.95, 0.999}) {
    for (const StatePolicy policy :
         {StatePolicy::kScale, StatePolicy::kReset}) {
      const std::vector<double> steps = Steps(beta2, policy, 200);
      for (size_t i = 1; i < steps.size(); ++i) {
        ASSERT_NEAR(steps[i], 1, 1e-6)
            << ToString(policy) << ", beta2 " << beta2 << ", step " << i;
      }
    }
  }
}

}  // namespace
}  // namespace delink::state_trap_test
