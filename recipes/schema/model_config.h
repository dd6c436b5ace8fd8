// The model section of a recipe is open: a kind of model brings its own keys.
//
// A kind is a struct derived from ModelConfig that describes its keys once, in
// Describe (recipes/schema/section.h). From that description come reading with
// positions and suggestions, the saved resolved recipe and docs/recipe.md.
//
//   struct MyConfig final : ModelConfig {
//     int64_t dim = 0;
//     std::string_view kind() const override { return "my"; }
//     std::vector<std::string> parts() const override { return {"mixer"}; }
//     std::unique_ptr<ModelConfig> Clone() const override {
//       return std::make_unique<MyConfig>(*this);
//     }
//     void Describe(Section& s) override {
//       s.Int("layers", &layers, {.doc = "blocks", .required = true, .min =
//       1}); s.Int("dim", &dim, {.doc = "width", .required = true, .min = 1});
//     }
//   };
//   ModelKind{"my", "What it is.", [] { return std::make_unique<MyConfig>(); }}
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace delink {

class Section;

struct ModelConfig {
  virtual ~ModelConfig() = default;

  int64_t layers = 0;   // blocks: what a share policy is about
  int64_t vocab = 0;    // 0 until the corpus has told it
  int64_t max_seq = 0;  // longest sequence; never 0 once a recipe is read

  virtual std::string_view kind() const = 0;
  // The parts of a block that a share map may name.
  virtual std::vector<std::string> parts() const = 0;
  virtual std::unique_ptr<ModelConfig> Clone() const = 0;
  // Names every key of the kind, among them `layers`; `vocab` and `max_seq`
  // where the kind has them. Every value decides the weights or the function,
  // so no key of a model may change when a run resumes.
  virtual void Describe(Section& section) = 0;
};

struct ModelKind {
  std::string name;
  std::string doc;  // one sentence
  std::function<std::unique_ptr<ModelConfig>()> make;
};

}  // namespace delink
