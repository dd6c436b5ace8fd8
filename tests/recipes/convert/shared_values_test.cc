// Values that threads read.
#include "recipes/convert/shared_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "framework/module/sequential.h"
#include "recipes/convert/llm_c_file.h"
#include "recipes/models/model_list.h"

namespace delink::testing::shared_values_test {
namespace {

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

TEST(SharedValues, TellOfAllThatRanksRead) {
  const ModelList models = BuiltInModels();
  ParamRegistry registry;
  const std::unique_ptr<Sequential> model =
      BuildModel(models, Scope(registry),
                 llm_c::ConfigOf({.max_seq = 8,
                                  .vocab = 30,
                                  .layers = 2,
                                  .heads = 2,
                                  .dim = 8,
                                  .rows = 128}));
  const Layout layout =
      Layout::Create(registry, model->blocks(), {}, {.mesh = {.data = 4}});
  int64_t parameters = 0;
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (tensor.link.empty()) parameters += tensor.shape.elements();
  }
  Nothing nothing;
  std::vector<int64_t> told;
  const std::function<void(int64_t, int64_t)> progress = [&](int64_t done,
                                                             int64_t all) {
    EXPECT_LE(done, all);
    told = {done, all};
  };
  SharedValues values{nothing, layout, progress};
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty()) continue;
    // It is whole on each of them.
    EXPECT_EQ(values.Has({}, tensor).size(), 4U) << tensor.name;
    for (const Extent& extent :
         OwnersOf(layout, tensor, StateExtent::kElements)) {
      ASSERT_TRUE(values.Read({}, tensor, extent, nullptr).ok());
    }
  }
  EXPECT_EQ(told, (std::vector<int64_t>{parameters, parameters}));
}

}  // namespace
}  // namespace delink::testing::shared_values_test
