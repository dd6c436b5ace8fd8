// The weights that a model begins with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/testing/model_runner.h"

namespace delink::testing {

// Of a model of two layers whose init_std is 0.02.
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

}  // namespace delink::testing
