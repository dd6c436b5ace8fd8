// An update by gradients that are kept in bf16 is the update by the same
// numbers in f32, to the bit: parameters, state, norms.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/optim/adafactor.h"
#include "framework/optim/adamw.h"
#include "framework/optim/first_order.h"
#include "framework/optim/muon.h"
#include "framework/tensor/bfloat16.h"
#include "layers/ops/matrix_product.h"
#include "tests/framework/module/plain_values.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/device_array.h"

namespace delink::testing {

struct NarrowKind {
  std::string name;
  std::function<std::unique_ptr<SlabOptimizer>()> make;
  MasterForm master = MasterForm::kWhole;
};

inline std::vector<NarrowKind> NarrowKinds() {
  static constexpr Hyper kHyper = {
      .decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .momentum = 0.9};
  const auto rules = [] { return ParamRules(kHyper); };
  std::vector<NarrowKind> kinds;
  for (const MasterForm master :
       {MasterForm::kWhole, MasterForm::kSplit, MasterForm::kNone}) {
    const std::string with =
        ", master " + std::to_string(static_cast<int>(master));
    kinds.push_back({"sgd" + with,
                     [=] { return NewSgd({.nesterov = true}, rules()); },
                     master});
    kinds.push_back({"sgd without momentum" + with,
                     [=] { return NewSgd({.has_momentum = false}, rules()); },
                     master});
    kinds.push_back({"lion" + with, [=] { return NewLion(rules()); }, master});
    kinds.push_back({"adafactor" + with,
                     [=] { return NewAdafactor({}, rules()); }, master});
    kinds.push_back({"muon" + with,
                     [=] { return NewMuon({}, rules(), MultiplyMatrices); },
                     master});
    for (const StateStorage moments :
         {StateStorage::kExact, StateStorage::kBF16, StateStorage::kBlock8}) {
      kinds.push_back({"adamw" + with + ", moments " +
                           std::to_string(static_cast<int>(moments)),
                       [=] { return NewAdamW({.moments = moments}, rules()); },
                       master});
    }
  }
  return kinds;
}

// A store in bf16, its optimizer, and the memory for both.
class NarrowRun {
 public:
  static constexpr int kBlocks = 2;
  static constexpr int64_t kWidth = 37;

  NarrowRun(Device& device, const NarrowKind& kind, bool narrow)
      : device_(device),
        stream_(device.NewStream()),
        optimizer_(kind.make()),
        narrow_(narrow) {
    DeclareToy(registry_, kBlocks, kWidth);
    store_ = MakeStore(device, registry_, kBlocks, {}, 0,
                       {.dtype = DType::kBF16,
                        .states = optimizer_->states(),
                        .whole_tensors = optimizer_->whole_tensors(),
                        .master = kind.master,
                        .bf16_gradients = narrow});
    store_->InitWeights(3);
    auto scratch =
        Buffer::Allocate(device, optimizer_->ScratchBytes(*store_), "scratch");
    EXPECT_TRUE(scratch.ok());
    scratch_ = *std::move(scratch);
    optimizer_->set_scratch(scratch_.data());
  }

  // By gradients that are numbers of bf16.
  void Step(const UpdateControl& control, int64_t update) {
    for (size_t s = 0; s < store_->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const RngKey key =
          Fold(Fold(KeyFromSeed(8), s), static_cast<uint64_t>(update));
      const auto gradient = [&](int64_t i) {
        return BFloat16(3 * Normal(key, static_cast<uint64_t>(i)));
      };
      if (narrow_) {
        Write<BFloat16>(*store_, slab, Plane::kGradient, gradient);
      } else {
        Write<float>(*store_, slab, Plane::kGradient, gradient);
      }
      AddNorms(slab);
      DeviceArray<UpdateControl> here(device_, {control});
      optimizer_->Update(*stream_, *store_, slab, here.data(), update);
      stream_->Synchronize();
    }
  }

  // What one is to have as the other, by name.
  std::vector<std::pair<std::string, std::vector<float>>> Values() const {
    std::vector<std::pair<std::string, std::vector<float>>> all;
    for (size_t s = 0; s < store_->slabs().size(); ++s) {
      const int slab = static_cast<int>(s);
      const Slab& of = store_->slabs()[s];
      std::vector<float> p(static_cast<size_t>(of.elements));
      testing::ReadParameters(*store_, *stream_, slab, 0, of.elements,
                              p.data());
      all.emplace_back(of.name + " parameters", std::move(p));
      const auto w = Read<BFloat16>(*store_, slab, Plane::kWeight);
      all.emplace_back(of.name + " weights",
                       std::vector<float>(w.begin(), w.end()));
      for (size_t k = 0; k < store_->states().size(); ++k) {
        for (size_t i = 0; i < of.params.size(); ++i) {
          const Range held = store_->state(slab, static_cast<int>(k), i).held;
          std::vector<float> values(static_cast<size_t>(held.size()));
          testing::ReadState(*store_, *stream_, slab, static_cast<int>(k), i,
                             held, values.data());
          all.emplace_back(of.name + " " + store_->states()[k].name,
                           std::move(values));
        }
      }
    }
    return all;
  }
  const std::vector<double>& norms() const { return norms_; }

 private:
  void AddNorms(int slab) {
    const Slab& of = store_->slab(slab);
    DeviceArray<double> sums(
        device_, std::vector<double>(static_cast<size_t>(of.blocks())));
    SumSquares(*stream_, *store_, slab, store_->owned(slab), sums.data());
    const std::vector<double> values = sums.Values(*stream_);
    norms_.insert(norms_.end(), values.begin(), values.end());
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  ParamRegistry registry_;
  std::unique_ptr<SlabOptimizer> optimizer_;
  const bool narrow_;
  std::unique_ptr<ParamStore> store_;
  Buffer scratch_;
  std::vector<double> norms_;
};

inline void ExpectNarrowAsWide(Device& device) {
  constexpr UpdateControl kControl = {
      .lr = 0.01, .clip_value = 0.9, .clip_factor = 0.3};
  UpdateControl skipped = kControl;
  skipped.skip = 1;
  skipped.clip_factor = 0;
  for (const NarrowKind& kind : NarrowKinds()) {
    SCOPED_TRACE(kind.name);
    NarrowRun wide(device, kind, false), narrow(device, kind, true);
    const auto before = narrow.Values();
    narrow.Step(skipped, 1);
    EXPECT_EQ(narrow.Values(), before);
    wide.Step(skipped, 1);
    for (int64_t update = 1; update <= 3; ++update) {
      wide.Step(kControl, update);
      narrow.Step(kControl, update);
      const auto expected = wide.Values(), actual = narrow.Values();
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(SameBits(actual[i].second, expected[i].second))
            << expected[i].first << " after update " << update;
      }
    }
    EXPECT_NE(narrow.Values(), before);
    EXPECT_EQ(narrow.norms(), wide.norms());
  }
}

// Parameters and state after two updates have the bits that they have on the
// CPU. (Products of matrices may be summed in another order, so not Muon's.)
inline void ExpectTheBitsOfTheCpu(Device& device) {
  const std::unique_ptr<Device> cpu = NewCpuDevice();
  constexpr UpdateControl kControl = {
      .lr = 0.01, .clip_value = 0.9, .clip_factor = 0.3};
  for (const NarrowKind& kind : NarrowKinds()) {
    if (kind.name.starts_with("muon")) continue;
    SCOPED_TRACE(kind.name);
    NarrowRun here(device, kind, true), there(*cpu, kind, true);
    for (int64_t update = 1; update <= 2; ++update) {
      here.Step(kControl, update);
      there.Step(kControl, update);
    }
    const auto actual = here.Values(), expected = there.Values();
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(SameBits(actual[i].second, expected[i].second))
          << expected[i].first;
    }
  }
}

}  // namespace delink::testing
