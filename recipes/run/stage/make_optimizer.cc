#include "recipes/run/stage/make_optimizer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/optim/adafactor.h"
#include "framework/optim/adamw.h"
#include "framework/optim/first_order.h"
#include "framework/optim/muon.h"
#include "layers/ops/matrix_product.h"
#include "recipes/schema/problems.h"

namespace delink {
namespace {

// Muon has a momentum for matrices of blocks, and betas for everything else. A
// group that gives either only to parameters of the other kind would change
// nothing. `used`: the numbers of the groups that the rules have.
absl::Status CheckGroupKeysApply(const Recipe& recipe,
                                 const ParamRegistry& registry,
                                 const std::vector<size_t>& used,
                                 const ParamRules& rules) {
  const OptimizerConfig& c = recipe.optimizer;
  if (c.kind != OptimizerConfig::Kind::kMuon) return absl::OkStatus();
  const auto blocks = static_cast<int>(recipe.model->layers);
  struct Matched {
    bool matrices = false, others = false;
  };
  std::vector<Matched> matched(used.size());
  for (size_t i = 0; i < registry.decls.size(); ++i) {
    const int group = rules.GroupOf(static_cast<int>(i));
    if (group < 0 || registry.decls[i].link >= 0) continue;
    Matched& m = At(matched, group);
    const ParamKind kind = KindOf(registry.decls[i], blocks);
    (kind == ParamKind::kHidden ? m.matrices : m.others) = true;
  }
  for (size_t i = 0; i < used.size(); ++i) {
    const OptimizerGroup& group = c.groups[used[i]];
    const bool momentum = group.momentum && !matched[i].matrices;
    const bool betas = !group.betas.empty() && !matched[i].others;
    if (!momentum && !betas) continue;
    const std::string key = absl::StrFormat("optimizer.group[%d].%s", used[i],
                                            momentum ? "momentum" : "betas");
    return ErrorAt(
        recipe, key, key,
        absl::StrFormat(
            "muon uses it for %s, and '%s' matches none of them, or only some "
            "that an earlier group matches; leave the key out",
            momentum ? "matrices of blocks" : "all but matrices of blocks",
            group.match.empty() ? group.part : group.match));
  }
  return absl::OkStatus();
}

double RatioOf(const OptimizerConfig& c) {
  return c.lr > 0 ? *c.adamw_lr / c.lr : 1;
}

std::unique_ptr<SlabOptimizer> MakeOf(const OptimizerConfig& c,
                                      ParamRules rules) {
  using Kind = OptimizerConfig::Kind;
  switch (c.kind) {
    case Kind::kAdamW:
      return NewAdamW({.eps = *c.eps, .moments = *c.moments}, std::move(rules));
    case Kind::kSgd:
      return NewSgd({.has_momentum = c.has_momentum(), .nesterov = *c.nesterov},
                    std::move(rules));
    case Kind::kLion:
      return NewLion(std::move(rules));
    case Kind::kAdafactor:
      return NewAdafactor({.eps = *c.eps, .relative = *c.relative_step},
                          std::move(rules));
    case Kind::kMuon:
      return NewMuon({.scale = *c.scale,
                      .nesterov = *c.nesterov,
                      .adamw_lr = RatioOf(c),
                      .adamw_eps = *c.eps},
                     std::move(rules), MultiplyMatrices);
  }
  DELINK_CHECK(false) << "no such optimizer";
  return nullptr;
}

}  // namespace

absl::StatusOr<ParamRules> RulesOf(const Recipe& recipe,
                                   const ParamRegistry& registry,
                                   size_t stage) {
  const OptimizerConfig& c = recipe.optimizer;
  Hyper all = {.decay = c.decay.value_or(0),
               .momentum = c.momentum.value_or(0)};
  if (!c.betas.empty()) {
    all.beta1 = c.betas[0];
    all.beta2 = c.betas[1];
  }
  std::vector<HyperGroup> groups;
  std::vector<size_t> used;
  for (size_t i = 0; i < c.groups.size(); ++i) {
    const OptimizerGroup& g = c.groups[i];
    if (!g.stage.empty() && g.stage != recipe.stages[stage].name) continue;
    used.push_back(i);
    HyperGroup& group = groups.emplace_back(HyperGroup{.match = g.match,
                                                       .part = g.part,
                                                       .lr_scale = g.lr_scale,
                                                       .decay = g.decay,
                                                       .momentum = g.momentum});
    if (g.betas.empty()) continue;
    group.beta1 = g.betas[0];
    group.beta2 = g.betas[1];
  }
  size_t wrong = 0;
  absl::StatusOr<ParamRules> rules =
      ParamRules::Create(registry, all, groups, &wrong);
  if (!rules.ok()) {
    const std::string key =
        absl::StrFormat("optimizer.group[%d].%s", used[wrong],
                        c.groups[used[wrong]].part.empty() ? "match" : "part");
    return ErrorAt(recipe, key, key, std::string(rules.status().message()));
  }
  DELINK_RETURN_IF_ERROR(CheckGroupKeysApply(recipe, registry, used, *rules));
  return rules;
}

absl::StatusOr<std::unique_ptr<SlabOptimizer>> MakeOptimizer(
    const Recipe& recipe, const ParamRegistry& registry) {
  DELINK_ASSIGN_OR_RETURN(ParamRules rules, RulesOf(recipe, registry, 0));
  std::unique_ptr<SlabOptimizer> made =
      MakeOf(recipe.optimizer, std::move(rules));
  made->set_seed(static_cast<uint64_t>(recipe.run.seed));
  return made;
}

absl::Status CheckGroups(const RunEnv& env, size_t stage,
                         const SharingMap& sharing) {
  DELINK_ASSIGN_OR_RETURN(const ParamRules rules,
                          RulesOf(*env.recipe, *env.registry, stage));
  const absl::Status status =
      rules.CheckSharing(*env.registry, env.model->blocks(), sharing);
  if (status.ok()) return status;
  const std::string key = absl::StrFormat("stage[%d].share", stage);
  return ErrorAt(*env.recipe, key, key, std::string(status.message()));
}

}  // namespace delink
