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

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace delink {

class Section;

struct ModelConfig {
  // What tensor parallelism cuts: so many of what a key says. Of what is
  // `repeated` several ranks may have the same one.
  struct Cut {
    std::string_view key;
    int64_t count = 0;
    bool repeated = false;

    bool Into(int64_t ranks) const {
      return count % ranks == 0 || (repeated && ranks % count == 0);
    }
  };

  virtual ~ModelConfig() = default;

  int64_t layers = 0;   // blocks: what a share policy is about
  int64_t vocab = 0;    // 0 until the corpus has told it
  int64_t max_seq = 0;  // longest sequence; never 0 once a recipe is read

  virtual std::string_view kind() const = 0;
  // The parts of a block that a share map may name.
  virtual std::vector<std::string> parts() const = 0;
  // What is to be cut evenly; where a kind names nothing, everything may be.
  virtual std::vector<Cut> cuts() const { return {}; }
  bool CutsInto(int64_t ranks) const {
    const std::vector<Cut> all = cuts();
    return std::all_of(all.begin(), all.end(),
                       [&](const Cut& cut) { return cut.Into(ranks); });
  }
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
