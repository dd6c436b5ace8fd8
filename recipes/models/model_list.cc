#include "recipes/models/model_list.h"

#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"

namespace delink {

ModelList BuiltInModels() {
  ModelList models;
  AddModel<GptConfig>(models, GptKind(), BuildGpt);
  AddModel<LlamaConfig>(models, LlamaKind(), BuildLlama);
  return models;
}

void AddModel(ModelList& models, ModelEntry entry) {
  for (const ModelEntry& other : models) {
    DELINK_CHECK(other.kind.name != entry.kind.name)
        << "there is a kind of model \"" << entry.kind.name
        << "\" already; AddModel needs another name";
  }
  models.push_back(std::move(entry));
}

std::vector<ModelKind> KindsOf(const ModelList& models) {
  std::vector<ModelKind> kinds;
  for (const ModelEntry& entry : models) kinds.push_back(entry.kind);
  return kinds;
}

std::unique_ptr<Sequential> BuildModel(const ModelList& models,
                                       const Scope& scope,
                                       const ModelConfig& config) {
  DELINK_CHECK_GT(config.vocab, 0);
  DELINK_CHECK_GT(config.max_seq, 0);
  for (const ModelEntry& entry : models) {
    if (entry.kind.name == config.kind()) return entry.build(scope, config);
  }
  DELINK_CHECK(false) << "no model of kind " << std::string(config.kind());
  return nullptr;
}

}  // namespace delink
