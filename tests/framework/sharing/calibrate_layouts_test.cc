// Calibration over layouts that cut parameters and spread layers over ranks:
// what it measures, and what it makes of the moments, are those of one process.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/sharing/calibrate.h"
#include "tests/framework/module/toy_model.h"
#include "tests/framework/sharing/cut_model.h"

namespace delink::calibrate_layouts_test {
namespace {

using testing::AnyOf;
using testing::CutStore;
using testing::DeclareCut;

constexpr int kBatches = 3;

// Of batch or moment number `of`, by the parameter's name and number.
float ValueOf(const std::string& name, int of, int64_t number) {
  const RngKey key = Fold(Fold(KeyFromSeed(13), std::string_view(name)),
                          static_cast<uint64_t>(of));
  return static_cast<float>(Normal(key, static_cast<uint64_t>(number)));
}

// Calls visit(slab, element, name, number) for all that a rank has.
template <typename Visit>
void ForEachElement(const ParamStore& store, Visit visit) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    const int slab = static_cast<int>(s);
    for (size_t p = 0; p < store.slabs()[s].params.size(); ++p) {
      const SlabParam& param = store.slabs()[s].params[p];
      int64_t element = param.offset;
      for (const int64_t number :
           testing::NumbersOf(store.local(slab), p, store.registry())) {
        visit(slab, element++, store.registry().decl(param.decl).name, number);
      }
    }
  }
}

// As a reduction leaves them: what it leaves elsewhere is anything.
void SetGradients(ParamStore& store, int batch) {
  const Layout& layout = store.layout();
  const std::vector<int> here = layout.LocalSlabsOf(store.rank());
  ForEachElement(store, [&](int slab, int64_t element, const std::string& name,
                            int64_t number) {
    const Range reduced = layout.ReducedOn(At(here, slab), store.rank());
    const bool known = element >= reduced.begin && element < reduced.end;
    *static_cast<float*>(store.at(slab, Plane::kGradient, element)) =
        known ? ValueOf(name, batch, number)
              : std::numeric_limits<float>::quiet_NaN();
  });
}

void SetState(ParamStore& store) {
  ForEachElement(store, [&](int slab, int64_t element, const std::string& name,
                            int64_t number) {
    const Range held = store.held(slab, Plane::kState0);
    if (element < held.begin || element >= held.end) return;
    for (const int state : {0, 1}) {
      *static_cast<float*>(store.at(slab, StatePlane(state), element)) =
          ValueOf(name, kBatches + state, number);
    }
  });
}

// After some batches and Apply.
Calibration Calibrated(ParamStore& store, Communicator& comm) {
  SetState(store);
  Calibration c = Calibration::Create(
      store,
      *RelationOf(store.registry(), store.blocks(),
                  testing::CutSharing(store.registry(), "all"),
                  store.sharing()),
      2.5);
  for (int batch = 0; batch < kBatches; ++batch) {
    SetGradients(store, batch);
    EXPECT_TRUE(c.AddBatch(store, 2, comm).ok());
  }
  EXPECT_EQ(c.batches(), kBatches);
  EXPECT_TRUE(c.Apply(store, comm).ok());
  return c;
}

TEST(CalibrateLayoutsTest, IsThatOfOneProcess) {
  AnyOf any(3);
  const std::unique_ptr<Device> device = NewCpuDevice();
  for (int trial = 0; trial < 30; ++trial) {
    const int ranks = any({2, 4, 6, 8});
    const Layout::Options options = any.LayoutOf(ranks);
    const char* const share = any({0, 1}) == 0 ? "none" : "groups:3";
    ParamRegistry registry;
    DeclareCut(registry);
    SelfCommunicator self;
    const auto whole = CutStore(*device, registry, share, 0, {});
    const Calibration expected = Calibrated(*whole, self);
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      ParamRegistry own;
      DeclareCut(own);
      const auto store = CutStore(*device, own, share, comm.rank(), options);
      const Calibration c = Calibrated(*store, comm);
      const std::vector<Slab>& slabs = store->layout().slabs();
      for (size_t s = 0; s < slabs.size(); ++s) {
        for (size_t p = 0; p < slabs[s].params.size(); ++p) {
          const int64_t entries =
              EntriesOf(own.decl(slabs[s].params[p].decl).spec).count;
          for (int64_t i = 0; i < entries; ++i) {
            const auto f = c.FactorsOf(static_cast<int>(s), p, i);
            const auto e = expected.FactorsOf(static_cast<int>(s), p, i);
            EXPECT_NEAR(f.first, e.first, 1e-12) << slabs[s].name;
            EXPECT_NEAR(f.second, e.second, 1e-12) << slabs[s].name;
          }
        }
      }
      ForEachElement(*store, [&](int slab, int64_t element,
                                 const std::string& name, int64_t number) {
        const Range held = store->held(slab, Plane::kState0);
        if (element < held.begin || element >= held.end) return;
        const LocalSlab& local = store->local(slab);
        size_t p = 0;
        while (p + 1 < local.slab.params.size() &&
               local.slab.params[p + 1].offset <= element) {
          ++p;
        }
        const Entries entries =
            EntriesOf(own.decl(local.slab.params[p].decl).spec);
        const auto f = c.FactorsOf(local.logical, local.params[p],
                                   number / entries.elements());
        for (const int state : {0, 1}) {
          const double factor = state == 0 ? f.first : f.second;
          ASSERT_EQ(*static_cast<const float*>(
                        store->at(slab, StatePlane(state), element)),
                    static_cast<float>(ValueOf(name, kBatches + state, number) *
                                       factor))
              << name;
        }
      });
      return absl::OkStatus();
    });
    ASSERT_TRUE(status.ok()) << status << ", trial " << trial;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "trial " << trial;
  }
}

}  // namespace
}  // namespace delink::calibrate_layouts_test
