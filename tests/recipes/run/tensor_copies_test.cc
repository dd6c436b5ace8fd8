// Other frameworks' tensor and context ranks have had copies of a parameter
// that part, because a part of its gradient was never added up. Here every one
// has the same bits on all ranks that have it, after steps in the numbers of
// runs.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "layers/modules/embedding.h"
#include "layers/modules/linear.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"
#include "tests/recipes/run/param_class.h"
#include "tests/recipes/run/tensor_steps.h"

namespace delink::testing::tensor_copies_test {
namespace {

// A map that is not cut beside one that is, as a router is beside what it
// routes to.
class RoutedBlock final : public Module {
 public:
  struct Config {
    int64_t dim;
  };
  RoutedBlock(const Scope& s, const Config& c)
      : norm_(s / "norm", {.dim = c.dim}),
        router_(s / "router", {.in = c.dim, .out = c.dim}),
        mlp_(s / "mlp", {.dim = c.dim, .hidden = 2 * c.dim}) {}
  Var operator()(Var x) override {
    const Var y = norm_(x);
    return x + mlp_(y) + router_(y);
  }

 private:
  Norm norm_;
  Linear router_;
  Mlp mlp_;
};

std::unique_ptr<Sequential> BuildRouted(const Scope& s, const GptConfig& c) {
  auto model = std::make_unique<Sequential>(s);
  model->Prologue<Embedding>(
      "embed", {.vocab = c.vocab, .dim = c.dim, .positions = c.max_seq});
  for (int64_t i = 0; i < c.layers; ++i) {
    model->Block<RoutedBlock>({.dim = c.dim});
  }
  model->Epilogue<LmHead>({.dim = c.dim, .vocab = c.vocab});
  return model;
}

// What a rank has of a plane, by (local slab of the layout, parameter).
using Held = std::map<std::pair<int, size_t>, std::vector<char>>;

Held HeldBy(StepRig& rig, Plane plane) {
  EXPECT_TRUE(rig.executor().Drain().ok());
  const ParamStore& store = rig.store();
  Held held;
  for (const int local : store.layout().LocalSlabsOf(store.rank())) {
    const int slab = store.SlabOf(local);
    const int64_t width = SizeOf(store.dtype(slab, plane));
    for (size_t p = 0; p < store.slab(slab).params.size(); ++p) {
      const SlabParam& param = store.slab(slab).params[p];
      std::vector<char> bytes(static_cast<size_t>(param.elements * width));
      if (!bytes.empty()) {
        std::memcpy(bytes.data(), store.at(slab, plane, param.offset),
                    bytes.size());
      }
      held[{local, p}] = std::move(bytes);
    }
  }
  return held;
}

struct CopiesCase {
  TensorCase of;
  DType dtype = DType::kF32;
  bool routed = false;
  friend std::ostream& operator<<(std::ostream& out, const CopiesCase& c) {
    return out << c.of << (c.routed ? ", routed, " : ", ") << ToString(c.dtype);
  }
};

std::vector<CopiesCase> CopiesCases() {
  const DType f32 = DType::kF32, bf16 = DType::kBF16;
  std::vector<CopiesCase> cases = {
      {{.tensor = 2}},
      {{.tensor = 2, .kind = "llama"}},
      {{.tensor = 2, .sequence = false, .kind = "llama"}},
      {{.tensor = 2, .options = {.dropout = 0.1}}, bf16, true},
      {{.tensor = 2, .sequence = false}, f32, true},
      // Of two heads of keys two ranks have the same one.
      {{.tensor = 4, .kind = "llama", .options = {.recompute = true}}},
      {{.tensor = 4, .sequence = false, .kind = "llama"}},
      {{.tensor = 4}, f32, true},
      {{.context = 2, .kind = "llama", .options = {.masked = true}}},
      {{.tensor = 2, .context = 2, .kind = "llama"}, bf16},
      {{.tensor = 2, .data = 2, .options = {.zero = 1, .muon = true}}},
      {{.tensor = 2,
        .pipeline = 2,
        .sequence = false,
        .kind = "llama",
        .share = "all",
        .options = {.lane_threads = true}},
       bf16},
  };
  for (CopiesCase& c : cases) c.of.options.layers = 2;
  return cases;
}

std::unique_ptr<StepRig> RigOf(Communicator& world, const CopiesCase& c) {
  RigOptions options = OptionsOf(c.of);
  options.dtype = c.dtype;
  options.tensor = c.of.tensor;
  options.context = c.of.context;
  options.pipeline = c.of.pipeline;
  options.sequence = c.of.sequence;
  options.clip = 0.5;
  if (c.routed) options.build = BuildRouted;
  return std::make_unique<StepRig>(world, c.of.share, options);
}

// Expects of what is in several ranks' hands that it is one; of which classes
// ranks of the tensor axis have the same.
std::set<Class> ExpectSameCopies(const Layout& layout,
                                 const std::vector<Held>& by_rank) {
  std::set<Class> compared;
  for (size_t l = 0; l < layout.local_slabs().size(); ++l) {
    const LocalSlab& local = layout.local_slabs()[l];
    const int first = local.group->front();
    for (size_t p = 0; p < local.slab.params.size(); ++p) {
      const std::pair<int, size_t> key(static_cast<int>(l), p);
      for (const int rank : *local.group) {
        EXPECT_TRUE(At(by_rank, rank).at(key) == At(by_rank, first).at(key))
            << layout.registry().decl(local.slab.params[p].decl).name
            << " of ranks " << first << " and " << rank;
        if (layout.mesh().PlaceOf(rank)[Axis::kTensor] !=
            layout.mesh().PlaceOf(first)[Axis::kTensor]) {
          compared.insert(ClassOf(layout, local, p));
        }
      }
    }
  }
  return compared;
}

class CopiesTest : public ::testing::TestWithParam<CopiesCase> {};
INSTANTIATE_TEST_SUITE_P(Rows, CopiesTest, ::testing::ValuesIn(CopiesCases()));

// In the numbers of runs, whose sums have other bits in every other order.
TEST_P(CopiesTest, AreTheSameBitsAfterSteps) {
  const CopiesCase& c = GetParam();
  std::vector<Held> weights(static_cast<size_t>(c.of.ranks())),
      masters(weights);
  std::set<Class> compared;
  OnRanks(c.of, [&](Communicator& world) {
    const std::unique_ptr<StepRig> rig = RigOf(world, c);
    const Held before = HeldBy(*rig, Plane::kWeight);
    for (int64_t step = 1; step <= 3; ++step) {
      const auto result =
          rig->executor().TrainStep(rig->Batch(step), step, 0.01);
      ASSERT_TRUE(result.ok()) << result.status();
    }
    At(weights, world.rank()) = HeldBy(*rig, Plane::kWeight);
    EXPECT_NE(At(weights, world.rank()), before);
    const bool master =
        rig->store().has(Plane::kMaster) && c.of.options.zero == 0;
    if (master) At(masters, world.rank()) = HeldBy(*rig, Plane::kMaster);
    ASSERT_TRUE(
        AllReduceScalar(world, 0.0, ReduceOp::kSum).ok());  // all are there
    if (world.rank() != 0) return;
    compared = ExpectSameCopies(rig->store().layout(), weights);
    if (master) ExpectSameCopies(rig->store().layout(), masters);
  });
  const bool llama = c.of.kind == "llama";
  EXPECT_EQ(compared.contains(Class::kReplicated), c.of.tensor > 1);
  EXPECT_EQ(compared.contains(Class::kByHead), c.of.tensor > 1 && llama);
  EXPECT_EQ(compared.contains(Class::kSharedRows),
            c.of.tensor > 2 && !c.routed);
}

}  // namespace
}  // namespace delink::testing::tensor_copies_test
