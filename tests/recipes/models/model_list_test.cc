#include "recipes/models/model_list.h"

#include <gtest/gtest.h>

#include "recipes/models/gpt.h"

namespace delink {
namespace {

TEST(ModelListDeathTest, TwoKindsOfOneNameAreTheProgrammersMistake) {
  ModelList models = BuiltInModels();
  EXPECT_DEATH(AddModel<GptConfig>(models, GptKind(), BuildGpt),
               "there is a kind of model \"gpt\" already");
}

}  // namespace
}  // namespace delink
