// The `dyt` kind of model: GPT's layout with dynamic tanh for norms.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/module/sequential.h"
#include "recipes/schema/model_config.h"

namespace dyt {

// docs: config
struct DytConfig final : delink::ModelConfig {
  int64_t dim = 0;
  int64_t heads = 0;
  int64_t expand = 4;
  double init_std = 0.02;

  std::string_view kind() const override { return "dyt"; }
  std::vector<std::string> parts() const override {
    return {"attention", "mlp", "tanh"};
  }
  std::unique_ptr<ModelConfig> Clone() const override {
    return std::make_unique<DytConfig>(*this);
  }
  void Describe(delink::Section& s) override;
};
// docs: end

delink::ModelKind DytKind();

std::unique_ptr<delink::Sequential> BuildDyt(const delink::Scope& s,
                                             const DytConfig& c);

}  // namespace dyt
