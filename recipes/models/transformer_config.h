// What the [model] sections of `gpt` and `llama` have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "recipes/schema/model_config.h"

namespace delink {

struct TransformerConfig : ModelConfig {
  // The largest size.
  static constexpr int64_t kMaxSize = 1 << 24;

  int64_t dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads; heads unless given
  int64_t ffn = 0;
  double norm_eps = 1e-5;
  bool tied = false;
  double dropout = 0.0;
  double init_std = 0.02;

  // Initial standard deviation of weights that write to the residual stream.
  // Each block adds two terms to it, all of the same size.
  double out_stddev() const;

  std::vector<std::string> parts() const final;
  std::vector<Cut> cuts() const final;

 protected:
  // What a kind says in the documentation of its sizes.
  struct SizeDocs {
    std::string_view heads, ffn_omitted, max_seq;
    int64_t* head_dim = nullptr;  // null: no key
  };
  void DescribeSizes(Section& s, const SizeDocs& docs);
  void DescribeNormEps(Section& s, std::string_view doc);
  void DescribeTied(Section& s);
  void DescribeWeights(Section& s);  // dropout and init_std
  // Also resolves kv_heads.
  void CheckKvHeads(Section& s);
};

}  // namespace delink
