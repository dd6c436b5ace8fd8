// Copies between stores on one device are what reading and writing would give,
// or are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/module/store_values.h"
#include "framework/tensor/block8.h"
#include "tests/framework/module/store_values_rig.h"

namespace delink::store_copy_test {
namespace {

using Kind = Field::Kind;
using testing::AllBytes;
using testing::FieldsOf;
using testing::Form;
using testing::Forms;
using testing::kToyBlocks;
using testing::kToyWidth;
using testing::MakeStore;
using testing::OnRank;
using testing::ReadBytes;
using testing::WantedOn;
using testing::WriteBytes;

using StoreCopyTest = testing::StoreValuesRig;

// From whole stores to the parts of three ranks, and back into whole ones.
TEST_F(StoreCopyTest, ACopyIsWhatReadingAndWritingGives) {
  int done = 0;
  for (const Form& form : Forms()) {
    SCOPED_TRACE(form.name);
    for (int rank = 0; rank < 3; ++rank) {
      const auto from = Store(form.options, rank, 3, 0);
      Fill(*from);
      const auto copied = Store(form.options, rank, 3, 1);
      const auto written = Store(form.options, rank, 3, 1);
      StoreValues source(*from), sink(*copied), other(*written);
      for (const Field& field : FieldsOf(*from)) {
        for (const LogicalTensor& tensor : from->layout().tensors()) {
          const bool ranges = sink.grain(field, tensor) > 1;
          Descriptor has = OnRank(source.Has(field, tensor), rank);
          if (ranges) has = AsRanges(has, tensor.shape);
          for (const Extent& target : WantedOn(sink, field, tensor, rank)) {
            const Extent extent = Part(has.at(0), target.rect);
            WriteBytes(other, field, tensor, target,
                       ReadBytes(source, field, tensor, extent));
            device_.to_host = device_.from_host = 0;
            const bool master = field.kind == Kind::kParameters &&
                                (from->has(tensor.slab, Plane::kMaster) ||
                                 from->has(tensor.slab, Plane::kLow));
            EXPECT_EQ(sink.Copy(source, field, tensor, extent, tensor, target),
                      !master);
            EXPECT_EQ(device_.to_host + device_.from_host, 0);
            done += master ? 0 : 1;
          }
        }
      }
      EXPECT_EQ(AllBytes(*copied), AllBytes(*written));
      if (rank == 0) {
        EXPECT_NE(AllBytes(*copied), AllBytes(*Store(form.options, 0, 3, 1)));
      }
    }
  }
  EXPECT_GT(done, 1'000);
}

class AnySource : public ValueSource {
 public:
  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Has(const Field&, const LogicalTensor&) const override {
    return {};
  }
  Descriptor Owners(const Field&, const LogicalTensor&) const override {
    return {};
  }
  absl::Status Read(const Field&, const LogicalTensor&, const Extent&,
                    void*) override {
    return absl::OkStatus();
  }
};

TEST_F(StoreCopyTest, CopiesOnlyWhatIsTheSame) {
  const auto exact = Store({});
  const auto rounded =
      Store({.states = testing::MomentsIn(StateStorage::kBF16)});
  const auto none = Store({.states = {}});
  const auto cpu = NewCpuDevice();
  const auto elsewhere = MakeStore(*cpu, registry_, kToyBlocks,
                                   testing::ShareAll(kToyBlocks, {"mlp"}), 1);
  Fill(*exact);
  const LogicalTensor& tensor = *std::find_if(
      exact->layout().tensors().begin(), exact->layout().tensors().end(),
      [](const LogicalTensor& t) { return t.name == "blocks/0/mlp/up"; });
  const Field field{Kind::kState, "m"};
  StoreValues source(*exact), round(*rounded), empty(*none), far(*elsewhere);
  AnySource any;
  const Extent all = source.Has(field, tensor).at(0);
  const auto before = AllBytes(*rounded);
  EXPECT_FALSE(round.Copy(source, field, tensor, all, tensor, all));
  EXPECT_FALSE(empty.Copy(source, field, tensor, all, tensor, all));
  EXPECT_FALSE(far.Copy(source, field, tensor, all, tensor, all));
  EXPECT_FALSE(source.Copy(any, field, tensor, all, tensor, all));
  EXPECT_EQ(AllBytes(*rounded), before);
  EXPECT_TRUE(round.Copy(source, {Kind::kWeight}, tensor, all, tensor, all));
}

// Parameters that begin at other places in their blocks, and parts of blocks.
TEST_F(StoreCopyTest, CopiesBlocksOf8BitsThatAreCutAlike) {
  ParamRegistry registry;
  const Scope block = Scope(registry).Layer(1, "block");
  for (const char* name : {"a", "b", "c"}) {
    block.Param(name, {.shape = {kToyWidth, 17}});  // 640 elements with padding
  }
  const auto store =
      MakeStore(device_, registry, 1, {}, 0,
                {.states = testing::MomentsIn(StateStorage::kBlock8)});
  Fill(*store);
  StoreValues ends(*store);
  const Field field{Kind::kState, "m"};
  const std::vector<LogicalTensor>& tensors = store->layout().tensors();
  ASSERT_EQ(tensors.at(1).offset, 640);
  const auto range = [&](size_t tensor, int64_t begin, int64_t end) {
    const Descriptor all =
        AsRanges(ends.Has(field, tensors.at(tensor)), tensors[tensor].shape);
    return Part(all.at(0), {begin, end - begin, 0, 1});
  };
  const auto copy = [&](size_t from, size_t to, const Extent& extent,
                        const Extent& target) {
    return ends.Copy(ends, field, tensors.at(from), extent, tensors.at(to),
                     target);
  };
  const auto before = AllBytes(*store);
  EXPECT_FALSE(copy(0, 1, range(0, 0, 629), range(1, 0, 629)));
  EXPECT_FALSE(copy(0, 0, range(0, 0, 100), range(0, 0, 100)));
  EXPECT_FALSE(copy(0, 0, range(0, 0, 256), range(0, 100, 356)));
  EXPECT_FALSE(copy(0, 2, range(0, 300, 512), range(2, 300, 512)));
  // Both end where blocks do, and only one begins so.
  EXPECT_FALSE(copy(0, 1, range(0, 128, 256), range(1, 0, 128)));
  EXPECT_EQ(AllBytes(*store), before);
  ASSERT_EQ(tensors.at(2).offset % kBlock8, 0);
  EXPECT_TRUE(copy(0, 2, range(0, 256, 629), range(2, 256, 629)));
  EXPECT_EQ(ReadBytes(ends, field, tensors[2], range(2, 256, 629)),
            ReadBytes(ends, field, tensors[0], range(0, 256, 629)));
  EXPECT_NE(AllBytes(*store), before);
}

}  // namespace
}  // namespace delink::store_copy_test
