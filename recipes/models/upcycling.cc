#include "recipes/models/upcycling.h"

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr std::string_view kMoe = "/moe/";
constexpr std::string_view kExperts = "experts/";
constexpr std::string_view kRouter = "router/";

class Upcycling {
 public:
  Upcycling(const std::string& checkpoint,
            const std::vector<TensorInfo>& tensors, const MoeConfig& config)
      : checkpoint_(checkpoint), config_(config) {
    for (const TensorInfo& tensor : tensors) tensors_[tensor.name] = &tensor;
  }

  // Decides about one declaration.
  absl::Status Add(const std::string& name) {
    const size_t moe = name.find(kMoe);
    if (moe == std::string::npos) return absl::OkStatus();
    const std::string mlp = name.substr(0, moe) + "/mlp/";
    const std::string_view local =
        std::string_view(name).substr(moe + kMoe.size());
    const auto saved = tensors_.find(name);
    if (saved != tensors_.end()) return CheckNumber(*saved->second);
    const auto dense = tensors_.lower_bound(mlp);
    if (dense == tensors_.end() || !dense->first.starts_with(mlp)) {
      return absl::OkStatus();  // a block that the checkpoint does not have
    }
    if (local.starts_with(kRouter)) {
      saved_as_.sources[name] = {};
      mlps_.insert(mlp);
      return CheckWidth(mlp);
    }
    if (!local.starts_with(kExperts)) {
      return Refused(absl::StrCat(
          "model.shared_experts is ", config_.shared_experts,
          ", but experts that begin as copies of its MLPs already give their "
          "output; use shared_experts = 0"));
    }
    const std::string copied = mlp + std::string(local.substr(kExperts.size()));
    saved_as_.sources[name] = {.name = copied, .repeated = true};
    copied_.insert(copied);
    return absl::OkStatus();
  }

  // Checks that all of each MLP is copied.
  absl::StatusOr<SavedAs> Finish() {
    for (const std::string& mlp : mlps_) {
      for (auto at = tensors_.lower_bound(mlp);
           at != tensors_.end() && at->first.starts_with(mlp); ++at) {
        if (copied_.contains(at->first)) continue;
        return Refused(absl::StrCat(
            "has ", at->first,
            ", but the model's experts have no such parameter; begin with a "
            "model whose MLPs have the parameters of its experts"));
      }
    }
    return std::move(saved_as_);
  }

 private:
  absl::Status Refused(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(checkpoint_, ": ", why));
  }

  // Experts that the checkpoint has already.
  absl::Status CheckNumber(const TensorInfo& saved) const {
    const int64_t experts = saved.shape.empty() ? 0 : saved.shape[0];
    if (saved.name.find(kExperts) == std::string::npos ||
        experts == config_.experts) {
      return absl::OkStatus();
    }
    return Refused(absl::StrCat(
        "has ", experts, " experts in a block, but the model's number is ",
        config_.experts, "; use experts = ", experts,
        ", or begin with a dense checkpoint"));
  }

  absl::Status CheckWidth(const std::string& mlp) const {
    const auto down = tensors_.find(mlp + "down/weight");
    if (down == tensors_.end() || down->second->shape.size() != 2 ||
        down->second->shape[1] == config_.expert_ffn) {
      return absl::OkStatus();
    }
    const int64_t width = down->second->shape[1];
    return Refused(absl::StrCat("its MLPs have a width of ", width,
                                ", but model.expert_ffn is ",
                                config_.expert_ffn,
                                ": experts begin as copies of them; use "
                                "expert_ffn = ",
                                width));
  }

  const std::string& checkpoint_;
  const MoeConfig& config_;
  std::map<std::string, const TensorInfo*> tensors_;  // by name
  std::set<std::string> mlps_, copied_;               // prefixes; names
  SavedAs saved_as_;
};

}  // namespace

absl::StatusOr<SavedAs> UpcyclingOf(const std::string& checkpoint,
                                    const std::vector<TensorInfo>& tensors,
                                    const ModelConfig& model,
                                    const ParamRegistry& registry) {
  const auto* const config = dynamic_cast<const MoeConfig*>(&model);
  if (config == nullptr) return SavedAs();
  Upcycling upcycling(checkpoint, tensors, *config);
  for (const ParamDecl& decl : registry.decls) {
    DELINK_RETURN_IF_ERROR(upcycling.Add(decl.name));
  }
  return upcycling.Finish();
}

bool KeepsOutput(const MoeConfig& config) {
  const ops::RouteConfig route = config.Route();
  return route.form.normalise && route.form.prototypes == 1 &&
         route.form.scale == 1 && config.shared_experts == 0 &&
         config.capacity == 0;
}

}  // namespace delink
