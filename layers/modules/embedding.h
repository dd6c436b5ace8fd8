// Embedding: a vector for each token plus a learned vector for each position.
// The two tables are the parts "embedding" and "position"; a tied head uses
// only "embedding". The token table is sharded over ranks (Tape::groups) by
// rows.
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

  // tokens [B, T] i32, each in [0, vocab). Returns [B, T, dim], or this rank's
  // own rows of it.
  Var operator()(Var tokens) override;

 private:
  int64_t vocab_;
  Param& token_;
  Param* position_;  // null without
  Dropout dropout_;
};

}  // namespace delink
