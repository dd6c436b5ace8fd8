// Embedding: tokens to vectors, plus a learned vector for each position. The
// tables are two parts, "embedding" and "position": a tied head uses the former
// alone. Over ranks (Tape::groups) that of tokens is cut by rows.
#pragma once

#include <cstdint>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "layers/modules/dropout.h"

namespace delink {

class Embedding final : public Module {
 public:
  struct Config {
    int64_t vocab = 0;
    int64_t dim = 0;
    int64_t positions = 0;  // 0: no position table
    double dropout = 0;
    double stddev = 0.02;
  };
  Embedding(const Scope& s, const Config& c);

  // tokens [B, T] i32, each in [0, vocab), to [B, T, dim], or a rank's own rows
  // of that.
  Var operator()(Var tokens) override;

 private:
  int64_t vocab_;
  Param& token_;
  Param* position_;  // null without
  Dropout dropout_;
};

}  // namespace delink
