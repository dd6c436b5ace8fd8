// The kinds of models that a program knows: an explicit list. A custom main can
// add to it.
//
//   ModelList models = BuiltInModels();
//   AddModel<MyConfig>(models, MyKind(), BuildMyModel);
//   AddFamily(models, MyFamily());   // what Hugging Face has of the kind
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/module/sequential.h"
#include "recipes/huggingface/family.h"
#include "recipes/schema/model_config.h"

namespace delink {

using ModelBuilder = std::function<std::unique_ptr<Sequential>(
    const Scope& scope, const ModelConfig& config)>;

struct ModelEntry {
  ModelKind kind;  // its name and [model] section
  ModelBuilder build;
  // Hugging Face families of this kind. The first that can express a model is
  // used.
  std::vector<huggingface::Family> families = {};
};

using ModelList = std::vector<ModelEntry>;

// gpt, llama, moe, with their families (huggingface_families.h).
ModelList BuiltInModels();

// Adds an entry. CHECK-fails if the name exists already.
void AddModel(ModelList& models, ModelEntry entry);

// The same for a kind whose configs, as kind.make makes them, are Configs.
template <typename Config>
void AddModel(ModelList& models, ModelKind kind,
              std::unique_ptr<Sequential> (*build)(const Scope&,
                                                   const Config&)) {
  AddModel(models,
           {.kind = std::move(kind),
            .build = [build](const Scope& scope, const ModelConfig& config) {
              return build(scope, ConfigAs<Config>(config));
            }});
}

// Adds a family to its kind. CHECK-fails if the list lacks the kind, or has a
// family of this model_type already.
void AddFamily(ModelList& models, huggingface::Family family);

// All of them; they live as long as the list.
std::vector<const huggingface::Family*> FamiliesOf(const ModelList& models);

// The kinds, for the recipe reader.
std::vector<ModelKind> KindsOf(const ModelList& models);

// The model of a config whose kind is in the list and whose vocab and max_seq
// are set. Allocates nothing but the modules.
std::unique_ptr<Sequential> BuildModel(const ModelList& models,
                                       const Scope& scope,
                                       const ModelConfig& config);

}  // namespace delink
