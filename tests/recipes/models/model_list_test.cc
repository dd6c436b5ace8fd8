#include "recipes/models/model_list.h"

#include <gtest/gtest.h>

#include "recipes/models/gpt.h"

namespace delink::model_list_test {
namespace {

TEST(ModelListDeathTest, TwoKindsOfOneNameAreTheProgrammersMistake) {
  ModelList models = BuiltInModels();
  EXPECT_DEATH(AddModel<GptConfig>(models, GptKind(), BuildGpt),
               "there is a kind of model \"gpt\" already");
}

TEST(ModelListDeathTest, TwoFamiliesOfOneTypeAreTheProgrammersMistake) {
  ModelList models = BuiltInModels();
  EXPECT_DEATH(AddFamily(models, {.model_type = "llama", .kind = "gpt"}),
               "there is a family of model_type \"llama\" already");
  EXPECT_DEATH(AddFamily(models, {.model_type = "my", .kind = "my"}),
               "no model of kind \"my\"");
}

}  // namespace
}  // namespace delink::model_list_test
