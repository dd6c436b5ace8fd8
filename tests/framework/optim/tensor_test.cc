// Updates of stores that tensor parallelism cuts, on ranks that are threads:
// each optimizer steps as one rank does that is alone and has the same
// gradients. Elementwise updates and Muon, which makes the same whole matrices
// orthogonal on all ranks, have its bits; Adafactor adds sums of the ranks'
// pieces, and differs by the rounding of its type.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "framework/optim/adafactor.h"
#include "framework/optim/adamw.h"
#include "framework/optim/first_order.h"
#include "framework/optim/muon.h"
#include "framework/optim/tensor_cut.h"
#include "framework/tensor/bfloat16.h"
#include "layers/ops/matrix_product.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/noted_group.h"

namespace delink::tensor_test {
namespace {

using testing::Exchange;
using testing::NotedGroup;

constexpr Hyper kHyper = {
    .decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .momentum = 0.9};
constexpr int kUpdates = 3;

struct Kind {
  const char* name;
  std::unique_ptr<SlabOptimizer> (*make)();
  ParamStore::Options store;
  double tolerance = 0;  // of a parameter, by its largest; 0: the same bits
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.name;
}

std::vector<Kind> Kinds() {
  const auto adamw = [] { return NewAdamW({}, ParamRules(kHyper)); };
  const auto adamw_bf16 = [] {
    return NewAdamW({.moments = StateStorage::kBF16}, ParamRules(kHyper));
  };
  const auto muon = [] {
    return NewMuon({}, ParamRules(kHyper), MultiplyMatrices);
  };
  const auto adafactor = [] { return NewAdafactor({}, ParamRules(kHyper)); };
  const ParamStore::Options bf16{.dtype = DType::kBF16};
  ParamStore::Options split = bf16, none = bf16, narrow = bf16;
  split.master = MasterForm::kSplit;
  none.master = MasterForm::kNone;
  narrow.bf16_gradients = true;
  return {
      {"adamw", adamw},
      {"adamw_whole_masters", adamw, bf16},
      {"adamw_split_masters", adamw, split},
      {"adamw_no_masters", adamw, none},
      {"adamw_bf16_moments", adamw_bf16, none},
      {"sgd", [] { return NewSgd({.nesterov = true}, ParamRules(kHyper)); }},
      {"lion", [] { return NewLion(ParamRules(kHyper)); }, narrow},
      {"muon", muon},
      {"muon_f64", muon, {.dtype = DType::kF64}},
      {"muon_bf16", muon, bf16},
      {"muon_bf16_gradients", muon, narrow},
      {"adafactor", adafactor, {}, 1e-6},
      {"adafactor_f64", adafactor, {.dtype = DType::kF64}, 1e-14},
      {"adafactor_bf16_gradients", adafactor, narrow, 1e-2},
      {"adafactor_absolute",
       [] { return NewAdafactor({.relative = false}, ParamRules(kHyper)); },
       {.dtype = DType::kF64},
       1e-14},
  };
}

// By logical slab and number of an element there: what each rank that updates
// it has after the updates. Of a master that is in two halves both.
using Values = std::map<std::pair<int, int64_t>, std::vector<double>>;

class TensorUpdateTest : public ::testing::TestWithParam<Kind> {
 protected:
  // `kv_heads` of 8, in 8 heads of 8.
  void Declare(int64_t kv_heads) {
    constexpr int64_t kDim = 48, kHead = 8, kHidden = 72;
    const int64_t q = 8 * kHead, kv = kv_heads * kHead;
    const Init normal = Init::Normal(0.3);
    const Scope root(registry_);
    root.Layer(0, "embed")
        .Part("embedding")
        .Param("weight",
               {.shape = {37, kDim}, .init = normal, .split = Split::kOut});
    for (int i = 0; i < 2; ++i) {
      const Scope block = root.Layer(i + 1, "blocks/" + std::to_string(i));
      const Scope attn = (block / "attn").Part("attention");
      attn.Param("norm", {.shape = {kDim}, .init = normal, .exact = true});
      attn.Param("qkv", {.shape = {q + 2 * kv, kDim},
                         .init = normal,
                         .split = Split::kOut,
                         .stacked = {q, kv, kv},
                         .unit = kHead});
      attn.Param("bias", {.shape = {q + 2 * kv},
                          .init = normal,
                          .split = Split::kOut,
                          .stacked = {q, kv, kv},
                          .unit = kHead});
      attn.Param("out", {.shape = {kDim, q},
                         .init = normal,
                         .split = Split::kIn,
                         .unit = kHead});
      const Scope mlp = (block / "mlp").Part("mlp");
      mlp.Param(
          "up",
          {.shape = {kHidden, kDim}, .init = normal, .split = Split::kOut});
      mlp.Param("mix", {.shape = {24, 16}, .init = normal});
      const Scope experts = (block / "experts").Part("mlp");
      experts.Param("up", {.shape = {3, 64, kDim},
                           .init = normal,
                           .split = Split::kOut,
                           .stacked = {32, 32},
                           .exact = true});
      experts.Param("bias", {.shape = {3, 64},
                             .vectors = true,
                             .init = normal,
                             .split = Split::kOut,
                             .stacked = {32, 32}});
      experts.Param(
          "down",
          {.shape = {3, kDim, 64}, .init = normal, .split = Split::kIn});
      experts.Param("mix", {.shape = {2, 10, 6}, .init = normal});
      experts.Param("mix_bias",
                    {.shape = {2, 10}, .vectors = true, .init = normal});
    }
    root.Layer(3, "").Param("norm", {.shape = {kDim}, .init = normal});
  }

  // Whether sharded or whole, all gradients are there.
  static void SetGradients(ParamStore& store, int update) {
    const RngKey key = Fold(KeyFromSeed(8), static_cast<uint64_t>(update));
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      ForEachValue(store, slab, [&](int64_t element, int64_t number) {
        const auto logical = static_cast<uint64_t>(store.local(slab).logical);
        const double value =
            Normal(Fold(key, logical), static_cast<uint64_t>(number));
        void* const at = store.at(slab, Plane::kGradient, element);
        switch (store.dtype(slab, Plane::kGradient)) {
          case DType::kF64:
            *static_cast<double*>(at) = value;
            break;
          case DType::kF32:
            *static_cast<float*>(at) = static_cast<float>(value);
            break;
          default:
            *static_cast<BFloat16*>(at) = BFloat16(value);
        }
      });
    }
  }

  // Calls visit(element, number of it in the logical slab).
  template <typename Visit>
  static void ForEachValue(const ParamStore& store, int slab, Visit visit) {
    const LocalSlab& local = store.local(slab);
    const Slab& logical = At(store.layout().slabs(), local.logical);
    for (size_t p = 0; p < local.slab.params.size(); ++p) {
      const int64_t first = logical.params[local.params[p]].offset;
      int64_t at = local.slab.params[p].offset;
      for (const int64_t number :
           testing::NumbersOf(local, p, store.registry())) {
        visit(at++, first + number);
      }
    }
  }

  static double ValueAt(const ParamStore& store, int slab, Plane plane,
                        int64_t element) {
    const void* const at = store.at(slab, plane, element);
    switch (store.dtype(slab, plane)) {
      case DType::kF64:
        return *static_cast<const double*>(at);
      case DType::kF32:
        return *static_cast<const float*>(at);
      default:
        return static_cast<const BFloat16*>(at)->bits;
    }
  }

  // Updates of all slabs of a rank, in their order; `tensor` may be null.
  void Update(ParamStore& store, SlabOptimizer& optimizer, NotedGroup* tensor) {
    std::vector<char> scratch(
        static_cast<size_t>(optimizer.ScratchBytes(store)) + 1);
    optimizer.set_scratch(scratch.data());
    optimizer.set_tensor_group(tensor);
    const auto stream = store.device().NewStream();
    const UpdateControl control{.lr = 0.01, .clip_factor = 0.5};
    for (int update = 1; update <= kUpdates; ++update) {
      SetGradients(store, update);
      for (size_t s = 0; s < store.slabs().size(); ++s) {
        const int slab = static_cast<int>(s);
        optimizer.Update(*stream, store, slab, &control, update);
        if (tensor == nullptr) continue;
        std::vector<Exchange> expected;
        for (const UpdateExchange& e : optimizer.Exchanges(
                 store.layout(), store.rank(), PlaceOf(store, slab).slab,
                 store.dtype(slab, Plane::kState0))) {
          expected.push_back({.kind = e.kind == UpdateExchange::Kind::kAllGather
                                          ? Exchange::Kind::kAllGather
                                          : Exchange::Kind::kAllReduce,
                              .count = e.count,
                              .dtype = e.dtype});
        }
        EXPECT_EQ(tensor->TakeNotes(), expected) << store.slab(slab).name;
        exchanges_ += static_cast<int>(expected.size());
      }
    }
  }

  std::unique_ptr<ParamStore> Store(Device& device, const Layout& layout,
                                    int rank, const SlabOptimizer& optimizer) {
    ParamStore::Options options = GetParam().store;
    options.states = optimizer.states();
    auto store = ParamStore::Create(device, layout, rank, options);
    DELINK_CHECK(store.ok()) << store.status().ToString();
    (*store)->InitWeights(3);
    return *std::move(store);
  }

  // What a rank has updated.
  static void Take(const ParamStore& store, Values& values) {
    for (size_t s = 0; s < store.slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const Range held = store.held(slab, Plane::kState0);
      ForEachValue(store, slab, [&](int64_t element, int64_t number) {
        if (element < held.begin || element >= held.end) return;
        double value = ValueAt(store, slab, store.master(slab), element);
        if (store.has(slab, Plane::kLow)) {
          value += 65536 * ValueAt(store, slab, Plane::kLow, element);
        }
        values[{store.local(slab).logical, number}].push_back(value);
      });
    }
  }

  void ExpectEqual(const Layout::Options& options) {
    const Layout layout = Layout::Create(registry_, 2, {}, options);
    Values cut;
    Mutex mutex;
    const absl::Status status =
        RunRanks(layout.ranks(), [&](Communicator& comm) -> absl::Status {
          const auto device = NewCpuDevice();
          const auto optimizer = GetParam().make();
          const MeshPlace place = layout.mesh().PlaceOf(comm.rank());
          MeshPlace first = place;
          first[Axis::kTensor] = 0;
          DELINK_ASSIGN_OR_RETURN(
              const auto split,
              comm.Split(layout.mesh().RankAt(first), place[Axis::kTensor]));
          NotedGroup group(*split);
          const auto store = Store(*device, layout, comm.rank(), *optimizer);
          Update(*store, *optimizer, &group);
          DELINK_RETURN_IF_ERROR(group.status());
          const MutexLock lock(mutex);
          Take(*store, cut);
          return absl::OkStatus();
        });
    ASSERT_TRUE(status.ok()) << status.ToString();
    Compare(layout, cut);
  }

  void Compare(const Layout& layout, const Values& cut) {
    ASSERT_EQ(cut.size(), whole_.size());
    double largest = 0, difference = 0;
    for (const auto& [place, values] : whole_) {
      const std::vector<double>& here = cut.at(place);
      for (const double value : here) {
        ASSERT_EQ(value, here[0]) << "ranks differ, slab " << place.first;
        if (GetParam().tolerance == 0) {
          ASSERT_EQ(value, values[0])
              << At(layout.slabs(), place.first).name << " " << place.second;
        }
      }
      largest = std::max(largest, std::abs(values[0]));
      difference = std::max(difference, std::abs(values[0] - here[0]));
    }
    EXPECT_LE(difference, GetParam().tolerance * largest);
  }

  void Run(int64_t kv_heads) {
    Declare(kv_heads);
    const auto device = NewCpuDevice();
    const auto alone = GetParam().make();
    const auto store =
        Store(*device, Layout::Create(registry_, 2, {}, {}), 0, *alone);
    Update(*store, *alone, nullptr);
    Take(*store, whole_);
    for (const int tensor : {2, 4}) {
      for (int zero = 0; zero < 2; ++zero) {
        SCOPED_TRACE(::testing::Message()
                     << kv_heads << " key/value heads, tensor " << tensor
                     << ", zero " << zero);
        ExpectEqual({.mesh = {.tensor = tensor, .data = 2},
                     .zero = zero,
                     .whole_tensors = alone->whole_tensors()});
      }
    }
    SCOPED_TRACE("beside a context axis, and far from each other");
    ExpectEqual({.mesh = {.tensor = 2,
                          .context = 2,
                          .order = {Axis::kContext, Axis::kData, Axis::kTensor,
                                    Axis::kPipeline}},
                 .zero = 1,
                 .whole_tensors = alone->whole_tensors()});
    const bool joins = alone->whole_tensors() != WholeTensors::kNone;
    EXPECT_EQ(exchanges_ > 0, joins);
  }

  ParamRegistry registry_;
  Values whole_;
  std::atomic<int> exchanges_{0};
};
INSTANTIATE_TEST_SUITE_P(Kinds, TensorUpdateTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

TEST_P(TensorUpdateTest, IsOneRanksWithAHeadForEach) { Run(8); }
TEST_P(TensorUpdateTest, IsOneRanksWithHeadsThatRanksShare) { Run(2); }
TEST_P(TensorUpdateTest, IsOneRanksWithOneHeadForAll) { Run(1); }

}  // namespace
}  // namespace delink::tensor_test
