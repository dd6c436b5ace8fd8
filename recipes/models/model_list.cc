#include "recipes/models/model_list.h"

#include "recipes/models/gpt.h"
#include "recipes/models/huggingface_families.h"
#include "recipes/models/llama.h"
#include "recipes/models/moe.h"

namespace delink {

ModelList BuiltInModels() {
  ModelList models;
  AddModel<GptConfig>(models, GptKind(), BuildGpt);
  AddModel<LlamaConfig>(models, LlamaKind(), BuildLlama);
  AddModel<MoeConfig>(models, MoeKind(), BuildMoe);
  AddFamily(models, Gpt2Family());
  for (huggingface::Family& family : LlamaFamilies()) {
    AddFamily(models, std::move(family));
  }
  for (huggingface::Family& family : MoeFamilies()) {
    AddFamily(models, std::move(family));
  }
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

void AddFamily(ModelList& models, huggingface::Family family) {
  for (const huggingface::Family* other : FamiliesOf(models)) {
    DELINK_CHECK(other->model_type != family.model_type)
        << "there is a family of model_type \"" << family.model_type
        << "\" already";
  }
  for (ModelEntry& entry : models) {
    if (entry.kind.name != family.kind) continue;
    entry.families.push_back(std::move(family));
    return;
  }
  DELINK_CHECK(false) << "no model of kind \"" << family.kind
                      << "\"; AddModel comes before AddFamily";
}

std::vector<const huggingface::Family*> FamiliesOf(const ModelList& models) {
  std::vector<const huggingface::Family*> families;
  for (const ModelEntry& entry : models) {
    for (const huggingface::Family& family : entry.families) {
      families.push_back(&family);
    }
  }
  return families;
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
