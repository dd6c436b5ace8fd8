// The model section of a recipe is open: a kind of model brings its own keys.
//
// A kind is a struct derived from ModelConfig that describes its keys once, in
// Describe (recipes/schema/section.h). Reading with positions and suggestions,
// the saved resolved recipe and docs/recipe.md all use that description.
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
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/check.h"

namespace delink {

class Section;
struct ParallelConfig;

struct ModelConfig {
  // Units that tensor parallelism divides among ranks: `count` of what the key
  // names, such as heads. If `repeated`, several ranks may hold the same unit.
  struct Cut {
    std::string_view key;
    int64_t count = 0;
    bool repeated = false;

    bool Into(int64_t ranks) const {
      return count % ranks == 0 || (repeated && ranks % count == 0);
    }
  };

  virtual ~ModelConfig() = default;

  int64_t layers = 0;   // blocks
  int64_t vocab = 0;    // 0 until read from the corpus
  int64_t max_seq = 0;  // longest sequence; never 0 once a recipe is read

  virtual std::string_view kind() const = 0;
  // The parts of a block that a share map may name.
  virtual std::vector<std::string> parts() const = 0;
  // What must divide evenly. If a kind lists nothing, any number of ranks is
  // allowed.
  virtual std::vector<Cut> cuts() const { return {}; }
  bool CutsInto(int64_t ranks) const {
    const std::vector<Cut> all = cuts();
    return std::all_of(all.begin(), all.end(),
                       [&](const Cut& cut) { return cut.Into(ranks); });
  }
  // Why the model cannot run in a stage's layout, if it cannot.
  struct Objection {
    std::string_view key;  // "parallel.sequence"
    std::string message;
  };
  virtual std::optional<Objection> ObjectionTo(const ParallelConfig&) const {
    return std::nullopt;
  }
  // Experts that a token goes to in a block.
  virtual int64_t choices() const { return 0; }
  virtual std::unique_ptr<ModelConfig> Clone() const = 0;
  // Describes every key of the kind: `layers`, and `vocab` and `max_seq` if the
  // kind has them. Every value affects the weights or the function, so no key
  // of a model may change when a run resumes.
  virtual void Describe(Section& section) = 0;
};

// A config that is known to be of a kind.
template <typename Config>
const Config& ConfigAs(const ModelConfig& config) {
  const auto* const own = dynamic_cast<const Config*>(&config);
  DELINK_CHECK(own != nullptr) << std::string(config.kind());
  return *own;
}

struct ModelKind {
  std::string name;
  std::string doc;  // one sentence
  std::function<std::unique_ptr<ModelConfig>()> make;
};

}  // namespace delink
