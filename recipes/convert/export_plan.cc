#include "recipes/convert/export_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "recipes/huggingface/tensor_map.h"

namespace delink {
namespace {

using huggingface::Family;
using huggingface::Piece;
using nlohmann::ordered_json;
using safetensors::Type;

// The first family of the model's kind that can express the model.
absl::Status ChooseFamily(const std::string& path, const ModelConfig& config,
                          const ModelList& models, ExportPlan& plan) {
  const std::string kind(config.kind());
  std::string reasons;
  for (const ModelEntry& entry : models) {
    if (entry.kind.name != kind) continue;
    for (const Family& family : entry.families) {
      ordered_json theirs = ordered_json::object();
      const absl::Status status = family.write(config, theirs);
      if (status.ok()) {
        plan.config = JsonText(theirs);
        plan.family = &family;
        if (family.interleaved) plan.pairs = family.interleaved(config);
        return absl::OkStatus();
      }
      absl::StrAppend(&reasons, "\n", family.model_type, ": ",
                      status.message());
    }
  }
  if (reasons.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": no Hugging Face family is known for models of kind '", kind,
        "'; your own program can add one with AddFamily (docs/convert.md)"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": no Hugging Face family can express this model:", reasons));
}

// The tensor of the checkpoint that is `decl` of a model of the visited blocks
// alone.
std::string SavedName(const Layout& saved, const ParamDecl& decl) {
  if (decl.layer < 1 || decl.layer > saved.depth()) return decl.name;
  return absl::StrCat("blocks/", At(saved.visited(), decl.layer) - 1, "/",
                      decl.local);
}

// All tensors in the order of the model. A link (a tied head) is not stored,
// nor the loads of a router's last step. A router's bias is always fp32, as in
// published models: rounded, it would choose others.
absl::Status PlanTensors(const ParamRegistry& registry, const Layout& saved,
                         Type dtype, ExportPlan& plan) {
  std::map<std::string, const LogicalTensor*> by_name;
  for (const LogicalTensor& tensor : saved.tensors()) {
    by_name[tensor.name] = &tensor;
  }
  for (const ParamDecl& decl : registry.decls) {
    const ParamSpec& spec = decl.spec;
    if (decl.link >= 0 || spec.router_loads) continue;
    DELINK_ASSIGN_OR_RETURN(std::vector<Piece> pieces,
                            PiecesOf(*plan.family, decl));
    const Type type = spec.exact && spec.is_vector() ? Type::kF32 : dtype;
    const std::string name = SavedName(saved, decl);
    const auto tensor = by_name.find(name);
    DELINK_CHECK(tensor != by_name.end()) << name;
    plan.moves.push_back(tensor->second);
    std::vector<ExportTarget>& targets = plan.targets[name];
    for (Piece& piece : pieces) {
      const auto same = std::ranges::find(
          targets, piece.name,
          [](const ExportTarget& target) { return target.piece.name; });
      const size_t index =
          same == targets.end() ? plan.tensors.size() : same->tensor;
      if (same == targets.end()) {
        plan.ours.push_back(name);
        plan.tensors.push_back(
            {.name = piece.name, .type = type, .shape = piece.shape});
      }
      targets.push_back({.tensor = index, .piece = std::move(piece)});
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExportPlan> PlanExport(const SavedModel& saved,
                                      const Layout& layout,
                                      const ModelList& models, Type dtype) {
  const std::unique_ptr<ModelConfig> config = saved.recipe().model->Clone();
  config->layers = layout.depth();
  ExportPlan plan;
  DELINK_RETURN_IF_ERROR(ChooseFamily(saved.path(), *config, models, plan));
  ParamRegistry registry;
  const std::unique_ptr<Sequential> model =
      BuildModel(models, Scope(registry), *config);
  DELINK_RETURN_IF_ERROR(PlanTensors(registry, layout, dtype, plan));
  return plan;
}

}  // namespace delink
