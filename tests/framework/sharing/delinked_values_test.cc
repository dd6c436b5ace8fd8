// What is delinked on its way has the bits of what is delinked in a store.
#include "framework/sharing/delinked_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/rng.h"
#include "framework/comm/self_communicator.h"
#include "framework/module/mover.h"
#include "framework/module/store_values.h"
#include "framework/sharing/delink.h"
#include "framework/sharing/grow.h"
#include "framework/sharing/share_spec.h"
#include "tests/framework/module/toy_model.h"

namespace delink::delinked_values_test {
namespace {

using testing::MakeStore;

constexpr int kBlocks = 4;
constexpr int64_t kWidth = 37;

// What a checkpoint of a model that shares would say: values by the names of
// tensors, of which several may have the same. They are of no form yet.
class Named : public ValueSource {
 public:
  explicit Named(const ParamStore& store) : store_(store), ends_(store) {
    for (const LogicalTensor& tensor : store.layout().tensors()) {
      owner_[tensor.name] = tensor.link.empty() ? tensor.name : tensor.link;
    }
  }

  DType type(const Field& field) const override { return ends_.type(field); }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override {
    Descriptor has = ends_.Has(field, Old(tensor));
    DELINK_CHECK_LE(has.size(), 1U);
    return has;
  }
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override {
    return Has(field, tensor);
  }
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override {
    auto* out = static_cast<float*>(values);
    const RngKey key =
        Fold(Fold(KeyFromSeed(3), std::string_view(owner_[tensor.name])),
             std::string_view(field.state));
    const int64_t n = extent.rect.elements();
    for (int64_t i = 0; i < n; ++i) {
      const double x =
          Normal(key, static_cast<uint64_t>(extent.offset + i)) * 1.5;
      const double size = x * std::exp(2 * x);
      *out++ = static_cast<float>(field.state == "m" ? size : size * size);
    }
    return absl::OkStatus();
  }

 private:
  // The tensor of that name in the model that shares.
  const LogicalTensor& Old(const LogicalTensor& tensor) const {
    for (const LogicalTensor& old : store_.layout().tensors()) {
      if (old.name == owner_.at(tensor.name)) return old;
    }
    DELINK_CHECK(false) << tensor.name;
    return tensor;
  }

  const ParamStore& store_;
  StoreValues ends_;
  std::map<std::string, std::string> owner_;
};

// All fields of all tensors of a layout, in pieces of at most `most` values.
void MoveAll(ValueSource& from, ParamStore& to, int64_t most) {
  SelfCommunicator self;
  StoreValues sink(to);
  for (const LogicalTensor& tensor : to.layout().tensors()) {
    if (!tensor.link.empty()) continue;
    std::vector<Move> moves = {{.field = {}, .from = &tensor, .to = {&tensor}}};
    for (const StateSpec& spec : to.states()) {
      moves.push_back({.field = {Field::Kind::kState, spec.name},
                       .from = &tensor,
                       .to = {&tensor}});
    }
    ASSERT_EQ(MoveValues(from, sink, moves, self, most), absl::OkStatus());
  }
}

void ExpectSameValues(const ParamStore& a, const ParamStore& b) {
  StoreValues left(a), right(b);
  std::vector<Field> fields(1);
  for (const StateSpec& spec : a.states()) {
    fields.push_back({Field::Kind::kState, spec.name});
  }
  for (const LogicalTensor& tensor : a.layout().tensors()) {
    for (const Field& field : fields) {
      for (const Extent& extent : left.Owners(field, tensor)) {
        const auto n = static_cast<size_t>(extent.rect.elements());
        std::vector<float> x(n, 1), y(n, 2);
        ASSERT_EQ(left.Read(field, tensor, extent, x.data()), absl::OkStatus());
        ASSERT_EQ(right.Read(field, tensor, extent, y.data()),
                  absl::OkStatus());
        ASSERT_EQ(x, y) << tensor.name << " " << field.state;
      }
    }
  }
}

std::vector<std::vector<StateSpec>> Forms() {
  std::vector<std::vector<StateSpec>> forms;
  for (const StateStorage storage : testing::kStorages) {
    forms.push_back(testing::MomentsIn(storage));
  }
  forms.push_back(testing::FactoredStates());
  return forms;
}

// The same, of exact values.
std::vector<StateSpec> Exact(std::vector<StateSpec> states) {
  for (StateSpec& spec : states) {
    for (StateFormat* format : {&spec.hidden, &spec.outer, &spec.vectors}) {
      format->storage = StateStorage::kExact;
    }
  }
  return states;
}

class DelinkedValuesTest : public ::testing::TestWithParam<StatePolicy> {
 protected:
  DelinkedValuesTest() { testing::DeclareToy(registry_, kBlocks, kWidth); }

  std::unique_ptr<ParamStore> Store(const SharingMap& map,
                                    const std::vector<StateSpec>& states) {
    return MakeStore(*device_, registry_, kBlocks, map, 0,
                     {.gradients = false, .states = states});
  }

  void ExpectAsInAStore(const SharingMap& before, const SharingMap& after,
                        const Growth& growth,
                        const std::vector<StateSpec>& states) {
    const auto from = Store(before, states);
    Named named(*from);
    MoveAll(named, *from, int64_t{1} << 20);
    const auto to = Store(after, states);
    SelfCommunicator self;
    ASSERT_EQ(Delink(*from, *to, GetParam(), self, growth), absl::OkStatus());

    DelinkedValues delinked(
        named, {.from = from->layout(),
                .to = to->layout(),
                .states = states,
                .origins = *GrowthOf(registry_, kBlocks, before, after, growth),
                .policy = GetParam(),
                .growth = growth});
    // Pieces that are no multiple of anything, and some of one row.
    for (const int64_t most : {int64_t{1} << 20, int64_t{1000}, int64_t{7}}) {
      const auto way = Store(after, Exact(states));
      MoveAll(delinked, *way, most);
      ExpectSameValues(*to, *way);
    }
  }

  const std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
};

TEST_P(DelinkedValuesTest, AreThoseOfAStoreThatDelinks) {
  const SharingMap shared = testing::ShareAll(kBlocks, {"attention", "mlp"});
  SharingMap pairs;
  pairs.leaders["attention"] = {0, 1, 0, 0};  // three layers, and one
  pairs.leaders["mlp"] = {0, 0, 0, 0};
  for (const std::vector<StateSpec>& states : Forms()) {
    for (const SharingMap& after : {SharingMap(), pairs}) {
      ExpectAsInAStore(shared, after, {}, states);
    }
  }
}

TEST_P(DelinkedValuesTest, AreThoseOfAStoreThatGrows) {
  const ShareSpec all = *ParseShareSpec("mlp=all");
  const SharingMap before =
      *ResolveSharing(all, registry_, kBlocks, std::vector<int>{1, 2});
  for (const GrowPolicy policy : {GrowPolicy::kCopy, GrowPolicy::kCycle,
                                  GrowPolicy::kRandom, GrowPolicy::kZero}) {
    const Growth growth{.policy = policy, .share = all, .seed = 9};
    for (const std::vector<StateSpec>& states : Forms()) {
      // Block 0 is new, and leads what blocks 1 and 2 shared.
      for (const char* share : {"none", "mlp=groups:2", "mlp=all"}) {
        ExpectAsInAStore(
            before, *ResolveSharing(*ParseShareSpec(share), registry_, kBlocks),
            growth, states);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Policies, DelinkedValuesTest,
                         ::testing::Values(StatePolicy::kScale,
                                           StatePolicy::kReset,
                                           StatePolicy::kCopy));

}  // namespace
}  // namespace delink::delinked_values_test
