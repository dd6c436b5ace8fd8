// How Muon steps (framework/optim/muon.h).
#pragma once

namespace delink {

struct MuonConfig {
  // The factor of the learning rate for a matrix [rows, columns].
  enum class Scale {
    kShape,  // sqrt(max(1, rows / columns)): one size of output for all shapes
    kRms,    // 0.2 sqrt(max(rows, columns)): an AdamW step's root mean square
  };
  Scale scale = Scale::kShape;
  bool nesterov = true;
  double adamw_lr = 1;  // learning rate of AdamW over that of Muon
  double adamw_eps = 1e-8;
};

}  // namespace delink
