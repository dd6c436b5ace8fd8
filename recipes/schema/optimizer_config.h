// The [optimizer] section of a recipe. An optional member is a key of some
// kinds of optimizer only. Once read, it has a value if the kind has the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/module/state_storage.h"
#include "framework/optim/muon_config.h"

namespace delink {

// Hyper-parameters that differ for the parameters of matching names.
struct OptimizerGroup {
  std::string match, part;  // one of them
  std::string stage;        // its name; empty: all
  std::optional<double> lr_scale, decay, momentum;
  std::vector<double> betas;  // two, or none
};

struct OptimizerConfig {
  enum class Kind { kAdamW, kSgd, kLion, kAdafactor, kMuon };
  // Which steps are skipped instead of ending the run.
  struct Skip {
    bool nonfinite = false;
    double outlier = 0;    // standard deviations; 0: none
    int64_t window = 100;  // steps
    int64_t most = 10;     // in a row
  };

  Kind kind = Kind::kAdamW;
  double lr = 0;
  std::vector<double> betas;  // two, or none
  std::optional<double> eps, momentum, adamw_lr;
  std::optional<bool> nesterov, relative_step;
  std::optional<MuonConfig::Scale> scale;
  std::optional<StateStorage> moments;
  std::optional<double> decay;  // set once read
  double clip = 1.0;            // global gradient norm; 0: no clipping
  double clip_value = 0;        // element of the gradient; 0: no clipping
  Skip skip;
  std::vector<OptimizerGroup> groups;

  // "adamw"
  std::string kind_name() const;
  // Whether SGD keeps a momentum.
  bool has_momentum() const;
};

}  // namespace delink
