// Other frameworks have counted one kind of parameter several times in the
// gradient norm, or not all of it, which its other kinds may hide. Here each is
// alone: the norm, and what is updated by it, are those of one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/at.h"
#include "framework/comm/self_communicator.h"
#include "tests/recipes/run/param_class.h"
#include "tests/recipes/run/tensor_steps.h"

namespace delink::testing::tensor_norms_test {
namespace {

// Leaves of all gradients one class's, before they come together.
class OneClassWatch final : public StepWatch {
 public:
  // In steps of a rig that has this watch.
  void Leave(StepRig& rig, Class only) {
    rig_ = &rig;
    only_ = only;
  }

  void Begin(Lane, int64_t, std::string_view what) override {
    if (rig_ == nullptr) return;
    if (!what.starts_with("Reduce(") && !what.starts_with("Squares(")) return;
    const int number = std::atoi(what.data() + what.find('(') + 1);
    const ParamStore& store = rig_->store();
    const int index = store.layout().LocalSlabOf(number, store.rank());
    const int slab = store.SlabOf(index);
    const LocalSlab& local = store.local(slab);
    for (size_t p = 0; p < local.slab.params.size(); ++p) {
      if (ClassOf(store.layout(), local, p) == only_) continue;
      const SlabParam& param = local.slab.params[p];
      std::memset(store.at(slab, Plane::kGradient, param.offset), 0,
                  static_cast<size_t>(param.elements) * sizeof(double));
    }
  }
  double Vote() override { return 0; }

 private:
  Class only_ = Class::kReplicated;
  StepRig* rig_ = nullptr;
};

// Calls visit(class, values, first) for the pieces of all ranks: their runs of
// neighbours in `values` of logical tensors.
void ForEachPiece(const Layout& layout,
                  const std::map<std::string, std::vector<double>>& values,
                  const std::function<void(Class, const std::vector<double>&,
                                           Range)>& visit) {
  for (const LocalSlab& local : layout.local_slabs()) {
    for (const LogicalTensor& tensor : layout.tensors()) {
      if (tensor.slab != local.logical || !tensor.link.empty()) continue;
      for (size_t p = 0; p < local.params.size(); ++p) {
        if (local.params[p] != tensor.param) continue;
        ForEachLogicalRun(
            local, p, layout.registry(), {0, local.slab.params[p].elements},
            [&](Range range, int64_t first) {
              visit(ClassOf(layout, local, p), values.at(tensor.name),
                    {first, first + range.size()});
            });
      }
    }
  }
}

// Of gradients that are sums over tokens.
std::map<Class, double> NormsByClass(const Layout& layout,
                                     const OneRank::Gradients& alone) {
  std::map<Class, double> squares;
  ForEachPiece(layout, alone.values,
               [&](Class of, const std::vector<double>& values, Range range) {
                 for (int64_t i = range.begin; i < range.end; ++i) {
                   squares[of] += At(values, i) * At(values, i);
                 }
               });
  double all = 0;
  for (const auto& [of, sum] : squares) all += sum;
  const auto tokens = static_cast<double>(alone.result.tokens);
  EXPECT_NEAR(std::sqrt(all) / tokens, alone.result.grad_norm, kNear);
  std::map<Class, double> norms;
  for (const auto& [of, sum] : squares) norms[of] = std::sqrt(sum) / tokens;
  return norms;
}

constexpr double kClip = 1e-3;

// What the update saw, AdamW's first moment: the clipped gradient of one class,
// and of others nothing.
void ExpectMoments(StepRig& rig, Class only, double norm,
                   const OneRank::Gradients& alone) {
  const ParamStore& store = rig.store();
  // As torch clips.
  const double factor =
      kClip / (norm + 1e-6) / static_cast<double>(alone.result.tokens);
  for (const LogicalTensor& tensor : store.layout().tensors()) {
    if (!tensor.link.empty()) continue;
    for (const int slab : store.LocalSlabsOf(tensor.slab)) {
      const LocalSlab& local = store.local(slab);
      for (size_t p = 0; p < local.params.size(); ++p) {
        if (local.params[p] != tensor.param) continue;
        const bool counts = ClassOf(store.layout(), local, p) == only;
        const SlabParam& param = local.slab.params[p];
        const auto* const moments = static_cast<const double*>(
            store.at(slab, Plane::kState0, param.offset));
        ForEachLogicalRun(local, p, store.registry(), {0, param.elements},
                          [&](Range range, int64_t first) {
                            for (int64_t i = 0; i < range.size(); ++i) {
                              const double gradient =
                                  At(alone.values.at(tensor.name), first + i);
                              ASSERT_NEAR(moments[range.begin + i],
                                          counts ? factor * gradient : 0,
                                          kNear * kClip)
                                  << tensor.name << " " << first + i;
                            }
                          });
      }
    }
  }
}

std::vector<TensorCase> NormCases() {
  std::vector<TensorCase> cases = {
      {.tensor = 2},
      {.tensor = 2, .sequence = false},
      {.tensor = 2, .kind = "llama"},
      {.tensor = 2, .sequence = false, .kind = "llama"},
      {.tensor = 4, .kind = "llama"},
      {.tensor = 4, .sequence = false, .kind = "llama"},
      {.tensor = 2,
       .data = 2,
       .sequence = false,
       .kind = "llama",
       .options = {.zero = 1}},
      {.context = 2, .kind = "llama"},
      {.tensor = 2, .context = 2, .kind = "llama"},
      {.tensor = 2, .pipeline = 2, .share = "all"},
  };
  for (TensorCase& of : cases) {
    of.options.layers = 2;
    of.options.tied = false;
    of.options.clip = kClip;
    of.options.adamw.beta1 = 0;  // the moment is the last gradient
  }
  return cases;
}

class NormOfClassTest : public ::testing::TestWithParam<TensorCase> {};
INSTANTIATE_TEST_SUITE_P(Rows, NormOfClassTest,
                         ::testing::ValuesIn(NormCases()));

// Each class alone, so that none hides behind another's larger gradients; and
// updates are clipped by it.
TEST_P(NormOfClassTest, IsThatOfOneRank) {
  const TensorCase& of = GetParam();
  SelfCommunicator self;
  const OneRank::Gradients alone = GradientsOf(*AloneOf(self, of));
  std::map<Class, double> found;
  OnRanks(of, [&](Communicator& world) {
    OneClassWatch watch;
    TensorCase watched = of;
    watched.options.watch = &watch;
    const std::unique_ptr<StepRig> rig = TogetherOf(world, watched);
    const auto expected = NormsByClass(rig->store().layout(), alone);
    for (const auto& [only, norm] : expected) {
      SCOPED_TRACE(static_cast<int>(only));
      watch.Leave(*rig, only);
      const auto step = rig->executor().TrainStep(rig->Batch(0), 1, /*lr=*/0);
      ASSERT_TRUE(step.ok()) << step.status();
      EXPECT_GT(norm, kClip);
      EXPECT_NEAR(step->grad_norm, norm, kNear);
      ASSERT_TRUE(rig->executor().Drain().ok());
      if (of.options.zero > 0) continue;  // moments are in shards
      ExpectMoments(*rig, only, norm, alone);
    }
    if (world.rank() == 0) found = expected;
  });
  EXPECT_EQ(found.size(),
            4u + (of.kind == "llama" ? 1 : 0) + (of.tensor > 2 ? 1 : 0));
}

}  // namespace
}  // namespace delink::testing::tensor_norms_test
