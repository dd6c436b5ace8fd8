// What holds of every kind of model.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "recipes/schema/model_config.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/model_runner.h"
#include "tests/testing/numbers.h"

namespace delink::testing {

struct ModelSizes {
  int64_t layers = 2, vocab = 11;
  int64_t max_seq = 0;  // as the config has it
  int64_t dim = 8, heads = 4, kv_heads = 4, ffn = 12;
};

// A model's config, of these sizes.
template <typename Config>
Config Sized(const ModelSizes& sizes) {
  Config c;
  c.layers = sizes.layers;
  c.vocab = sizes.vocab;
  if (sizes.max_seq > 0) c.max_seq = sizes.max_seq;
  c.dim = sizes.dim;
  c.heads = sizes.heads;
  c.kv_heads = sizes.kv_heads;
  c.ffn = sizes.ffn;
  return c;
}

// All blocks share every part.
inline SharingMap AllShared(const ModelConfig& c) {
  SharingMap sharing;
  for (const std::string& part : c.parts()) {
    sharing.leaders[part] = std::vector<int>(static_cast<size_t>(c.layers), 0);
  }
  return sharing;
}

// Of each parameter its name, part and shape, and whether it decays and is a
// link.
inline std::vector<std::string> Declared(const ModelRunner::Build& build) {
  ParamRegistry registry;
  const auto model = build(Scope(registry));
  std::vector<std::string> names;
  for (const ParamDecl& decl : registry.decls) {
    names.push_back(decl.name + " " + decl.part + " " +
                    decl.spec.shape.ToString() + (decl.spec.decay ? " d" : "") +
                    (decl.link >= 0 ? " link" : ""));
  }
  return names;
}

// Weights that a model of two layers begins with whose init_std is 0.02.
inline void ExpectInitialWeights(const ModelRunner& model) {
  for (const LogicalTensor& tensor : model.tensors()) {
    SCOPED_TRACE(tensor.name);
    double sum = 0, squares = 0;
    const std::vector<double> values = model.Values(tensor, Plane::kWeight);
    for (const double v : values) {
      sum += v;
      squares += v * v;
    }
    const auto n = static_cast<double>(values.size());
    if (tensor.name.find("bias") != std::string::npos) {
      EXPECT_EQ(squares, 0);
    } else if (tensor.name.find("norm") != std::string::npos) {
      EXPECT_EQ(sum, n);
      EXPECT_EQ(squares, n);
    } else {
      const bool out = tensor.name.find("/out/") != std::string::npos ||
                       tensor.name.find("/down/") != std::string::npos;
      const double std = out ? 0.01 : 0.02;  // 0.02 / sqrt(2 * 2)
      EXPECT_NEAR(std::sqrt(squares / n), std, 6 * std / std::sqrt(2 * n));
    }
  }
}

inline void ExpectSameGradients(const ModelRunner& a, const ModelRunner& b,
                                double factor, double floor, double tolerance) {
  for (const LogicalTensor& tensor : a.tensors()) {
    std::vector<double> expected = a.Values(tensor, Plane::kGradient);
    for (double& g : expected) g *= factor;
    EXPECT_LT(NormError(b.Values(tensor, Plane::kGradient), expected, floor),
              tolerance)
        << tensor.name;
  }
}

inline void ExpectAccumulationDoublesGradients(const ModelRunner::Build& build,
                                               int64_t vocab) {
  const auto batch = RandomBatch(2, 5, vocab);
  ModelRunner once(build, batch, {}), twice(build, batch, {});
  once.Gradients(1);
  twice.Gradients(2);
  ExpectSameGradients(once, twice, 2, 1e-3, 1e-13);
}

// Of two builds that differ by dropout alone, of which the first has none.
inline void ExpectDropoutIsOffInEvaluation(const ModelRunner::Build& build,
                                           const ModelRunner::Build& dropout,
                                           int64_t vocab) {
  const auto batch = RandomBatch(2, 5, vocab);
  const double plain =
      ModelRunner(build, batch, {}).Loss(/*training=*/true).loss_sum;
  ModelRunner model(dropout, batch, {});
  EXPECT_EQ(model.Loss(/*training=*/false).loss_sum, plain);
  EXPECT_NE(model.Loss(/*training=*/true).loss_sum, plain);
}

// Of a model with 131 tokens.
inline void ExpectSinglePrecisionFollowsDouble(
    const ModelRunner::Build& build) {
  const auto batch = RandomBatch(3, 37, 131, 5);
  ModelRunner f64(build, batch, {});
  ModelRunner f32(build, batch,
                  {.dtype = DType::kF32, .memory = MemoryMode::kPlanned});
  for (const LogicalTensor& tensor : f64.tensors()) {
    f64.SetWeight(tensor, f32.Values(tensor, Plane::kWeight));
  }
  const LossRecord expected = f64.Gradients(), actual = f32.Gradients();
  EXPECT_EQ(actual.tokens, expected.tokens);
  EXPECT_NEAR(actual.loss_sum, expected.loss_sum, 1e-5 * expected.loss_sum);
  EXPECT_NEAR(actual.z_sum, expected.z_sum, 1e-5 * expected.z_sum);
  ExpectSameGradients(f64, f32, 1, 1e-2, 2e-5);
  EXPECT_LT(NormError(f32.Logits(), f64.Logits()), 1e-5);
}

}  // namespace delink::testing
