// Values that threads read in turns.
#include "recipes/convert/shared_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>

#include "framework/module/sequential.h"
#include "recipes/convert/llm_c_file.h"
#include "recipes/models/model_list.h"

namespace delink::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Nothing final : public ValueSource {
 public:
  DType type(const Field&) const override { return DType::kF32; }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override {
    return Owners(field, tensor);
  }
  Descriptor Owners(const Field&, const LogicalTensor& tensor) const override {
    const Rect whole = WholeOf(tensor.shape);
    return {{.rect = whole, .pitch = whole.columns}};
  }
  absl::Status Read(const Field&, const LogicalTensor&, const Extent&,
                    void*) override {
    return absl::OkStatus();
  }
};

class SharedValuesTest : public ::testing::Test {
 protected:
  // What a rank writes, some tensors or the rest.
  enum class Part { kFirst, kRest };
  void Read(int rank, Part part) {
    bool first = true;
    for (const LogicalTensor& tensor : layout_.tensors()) {
      if (!tensor.link.empty()) continue;
      for (const Extent& extent :
           OwnersOf(layout_, tensor, StateExtent::kElements)) {
        if (extent.rank != rank) continue;
        if (first == (part == Part::kFirst)) {
          EXPECT_TRUE(values_.Read({}, tensor, extent, nullptr).ok());
        }
        first = false;
      }
    }
  }

  const ModelList models_ = BuiltInModels();
  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_ =
      BuildModel(models_, Scope(registry_),
                 llm_c::ConfigOf({.max_seq = 8,
                                  .vocab = 30,
                                  .layers = 2,
                                  .heads = 2,
                                  .dim = 8,
                                  .rows = 128}));
  Layout layout_ =
      Layout::Create(registry_, model_->blocks(), {}, {.mesh = {.data = 4}});
  Nothing nothing_;
  std::vector<int64_t> told_;
  std::function<void(int64_t, int64_t)> progress_ = [this](int64_t done,
                                                           int64_t all) {
    told_ = {done, all};
  };
  SharedValues values_{nothing_, layout_, progress_};
};

TEST_F(SharedValuesTest, TheThirdReadsOnceOneHasReadItAll) {
  Read(0, Part::kFirst);
  Read(1, Part::kFirst);
  auto third =
      std::async(std::launch::async, [this] { Read(2, Part::kFirst); });
  EXPECT_EQ(third.wait_for(milliseconds(300)), std::future_status::timeout);
  Read(1, Part::kRest);
  EXPECT_EQ(third.wait_for(milliseconds(1000)), std::future_status::ready);
  for (const int rank : {0, 2}) Read(rank, Part::kRest);
  for (const Part part : {Part::kFirst, Part::kRest}) Read(3, part);
  ASSERT_EQ(told_.size(), 2U);
  EXPECT_EQ(told_[0], told_[1]);
}

// Of two that have failed nobody hears any more.
TEST_F(SharedValuesTest, NobodyIsWaitedForForEver) {
  Read(0, Part::kFirst);
  Read(1, Part::kFirst);
  auto third =
      std::async(std::launch::async, [this] { Read(2, Part::kFirst); });
  EXPECT_EQ(third.wait_for(seconds(30)), std::future_status::ready);
}

}  // namespace
}  // namespace delink::testing
