// The text of a recipe. One that is taken must read back from what it is
// written as.
#include "framework/base/file.h"
#include "recipes/models/model_list.h"
#include "recipes/schema/recipe_io.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/source_path.h"

namespace delink::fuzz {

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const std::string folder = testing::SourcePath("recipes");
  const std::vector<std::string> names = ListDirectory(folder).value();
  for (const std::string& name : names) {
    if (!name.ends_with(".toml")) continue;
    seeds.push_back(ReadFile(JoinPath(folder, name)).value());
  }
  return seeds;
}

std::vector<std::string> Words() {
  return WordsOf(
      "[[stage]]\n|[model]\n|[run]\n|share = |until = { | }|\"none\"|groups:4|"
      "cycle:2|attention=all|true|nan|inf|-inf|1e400|1e-400|0x7fff|1979-05-27|"
      "\"\"\"|'''|\\u0000|\xEF\xBB\xBF|\xE9|= |[|]|{|}|#|\r\n|plateau|"
      "gradient|fraction|steps|tokens|zero = 1|state = |lr_scale = ");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<ModelKind> kinds = KindsOf(BuiltInModels());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto recipe = ParseRecipe(text, "fuzz.toml", "/data", {}, kinds);
  MustSay(recipe.status());
  if (!recipe.ok()) return 0;
  const auto again =
      ParseRecipe(ToToml(*recipe), "again.toml", "/data", {}, kinds);
  DELINK_CHECK(again.ok()) << again.status().ToString();
  DELINK_CHECK(DiffRecipes(*recipe, *again).empty());
  return 0;
}

}  // namespace delink::fuzz
