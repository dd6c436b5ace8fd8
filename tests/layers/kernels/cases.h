// Calls of kernels that can be made on any table: the same inputs (numbers that
// f32, or bf16, holds exactly), poisoned outputs, and the outputs as doubles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/device/backend.h"
#include "framework/tensor/bfloat16.h"
#include "layers/kernels/kernels.h"
#include "tests/testing/guarded.h"
#include "tests/testing/numbers.h"

namespace delink::testing {

struct Output {
  std::string name;
  std::vector<double> values;
  // Of f32 against double, or of what bf16 is rounded from, element by element,
  // see WorstError; 0 for outputs that only move data.
  double tolerance;
  bool bf16 = false;
  // Of bf16: rounded, then something added, and rounded again.
  bool twice = false;
};
using Outputs = std::vector<Output>;

using Call = std::function<Outputs(const Kernels&, Stream&)>;
struct Case {
  std::string name;
  Call f32, f64, bf16;
};

// `body` is a generic functor: body.template operator()<T>(kernels, stream).
template <typename Body>
Case MakeCase(std::string name, Body body) {
  return {std::move(name),
          [body](const Kernels& kernels, Stream& stream) {
            return body.template operator()<float>(kernels, stream);
          },
          [body](const Kernels& kernels, Stream& stream) {
            return body.template operator()<double>(kernels, stream);
          },
          [body](const Kernels& kernels, Stream& stream) {
            return body.template operator()<BFloat16>(kernels, stream);
          }};
}

template <typename T>
Output Result(std::string name, const Guarded<T>& buffer, double tolerance) {
  return {std::move(name),
          {buffer.data(), buffer.data() + buffer.size()},
          tolerance,
          std::is_same_v<T, BFloat16>};
}

// The first `count` elements; those behind may never have been written.
template <typename T>
Output FirstOf(std::string name, const Guarded<T>& buffer, int64_t count,
               double tolerance) {
  return {std::move(name),
          {buffer.data(), buffer.data() + count},
          tolerance,
          std::is_same_v<T, BFloat16>};
}

// Of each element whether it is not a number: 1 or 0.
template <typename T>
Output WhereNotANumber(std::string name, const Guarded<T>& buffer) {
  Output output = {std::move(name), {}, 0.0};
  for (int64_t i = 0; i < buffer.size(); ++i) {
    const T value = buffer[i];
    output.values.push_back(value == value ? 0.0 : 1.0);
  }
  return output;
}

// Normal numbers that f32 holds exactly, as T; as BFloat16, rounded. Many
// repeat after a prime number of them: making them takes longer than the
// kernels do.
template <typename T>
Guarded<T> Input(std::string_view name, int64_t count, double scale = 1.0) {
  constexpr int64_t kPeriod = 4099;
  const std::vector<float> values =
      Normals<float>(name, std::min(count, kPeriod), scale);
  Guarded<T> result(count);
  for (int64_t i = 0; i < count; ++i) result[i] = T(values[i % kPeriod]);
  return result;
}

// Of tokens, some of which have none: -1.
inline Guarded<int32_t> Targets(int64_t N) {
  std::vector<int32_t> targets = Integers("targets", N, 4);
  for (int32_t& target : targets) target -= 1;
  return Guarded<int32_t>(targets);
}

std::vector<Case> MatmulCases();
std::vector<Case> NormCases();
std::vector<Case> PointwiseCases();
std::vector<Case> RotaryCases();
std::vector<Case> EmbeddingCases();
std::vector<Case> AttentionCases();
std::vector<Case> CrossEntropyCases();
std::vector<Case> VocabCases();
std::vector<Case> RouterCases();
std::vector<Case> ExpertCases();

struct Group {
  const char* name;
  std::vector<Case> (*cases)();
};
inline constexpr Group kGroups[] = {
    {"Matmul", MatmulCases},
    {"Norm", NormCases},
    {"Pointwise", PointwiseCases},
    {"Embedding", EmbeddingCases},
    {"Rotary", RotaryCases},
    {"Attention", AttentionCases},
    {"CrossEntropy", CrossEntropyCases},
    {"Vocab", VocabCases},
    {"Routers", RouterCases},
    {"Experts", ExpertCases},
};

// What the reference makes of a case: in double, or on bf16.
Outputs Expected(const Case& c, bool bf16, Stream& cpu);
// What a fast table made of a case against what the reference did.
void ExpectAgrees(const Outputs& actual, const Outputs& expected);
// Of a bf16 table: elements 2^31 and more behind the first of matrices, rows
// and biases of experts (DeepSpeed#8261). Takes little of the memory that it
// allocates, as long as gradients of experts without tokens, which a GPU
// writes, are left out.
void ExpectFarElements(const Kernels& kernels, Device& device,
                       bool all_gradients);
// Bit for bit.
void ExpectSame(const Outputs& again, const Outputs& first);

}  // namespace delink::testing
