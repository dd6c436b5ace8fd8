// Rows of several documents that are masked: whole models on packed documents
// against the documents one by one, and against central differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "recipes/models/gpt.h"
#include "recipes/models/llama.h"
#include "tests/recipes/models/model_checks.h"
#include "tests/testing/documents.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/numbers.h"

namespace delink::masked_test {
namespace {

using testing::ModelRunner;
using Batch = ModelRunner::Batch;

constexpr int64_t kVocab = 13;

ModelRunner::Build Gpt(int64_t max_seq) {
  auto c = testing::Sized<GptConfig>({.vocab = kVocab, .max_seq = max_seq});
  c.init_std = 0.4;
  return [c](const Scope& s) { return BuildGpt(s, c); };
}

// Grouped queries and rotary positions.
ModelRunner::Build Llama(int64_t max_seq, int64_t window = 0) {
  auto c = testing::Sized<LlamaConfig>(
      {.vocab = kVocab, .max_seq = max_seq, .kv_heads = 2, .ffn = 9});
  c.head_dim = 4;
  c.rotary.base = 100;
  c.window = window;
  c.init_std = 0.4;
  return [c](const Scope& s) { return BuildLlama(s, c); };
}

struct Model {
  std::string name;
  ModelRunner::Build build;
};

std::vector<Model> Models(int64_t max_seq) {
  return {{"gpt", Gpt(max_seq)},
          {"llama", Llama(max_seq)},
          {"llama with a window", Llama(max_seq, 5)}};
}

// Rows in which documents of these lengths follow each other. What follows a
// document's last token is not counted; where the row ends it is, the document
// being cut.
Batch Packed(int64_t B, int64_t T, const std::vector<int64_t>& lengths) {
  Batch batch = testing::RandomBatch(B, T, kVocab);
  batch.positions = testing::Positions(B, T, lengths);
  for (size_t i = 0; i + 1 < batch.positions.size(); ++i) {
    if (batch.positions[i + 1] == 0) batch.targets[i] = -1;
  }
  return batch;
}

// The documents of a batch, each a batch of its own.
std::vector<Batch> OneByOne(const Batch& packed) {
  std::vector<Batch> documents;
  for (size_t i = 0; i < packed.tokens.size(); ++i) {
    if (packed.positions[i] == 0) {
      documents.push_back({.B = 1, .samples = {1000}});
    }
    documents.back().T += 1;
    documents.back().tokens.push_back(packed.tokens[i]);
    documents.back().targets.push_back(packed.targets[i]);
  }
  return documents;
}

using Gradients = std::map<std::string, std::vector<double>>;

Gradients GradientsOf(const ModelRunner& model) {
  Gradients all;
  for (const LogicalTensor& tensor : model.tensors()) {
    all[tensor.name] = model.Values(tensor, Plane::kGradient);
  }
  return all;
}

// Loss and gradients of the packed rows against the sums over their documents.
void ExpectSumOfDocuments(const ModelRunner::Build& build, const Batch& packed,
                          DType dtype, double tolerance) {
  ModelRunner together(
      build, packed, {.dtype = dtype, .memory = testing::MemoryMode::kPlanned});
  const LossRecord loss = together.Gradients();
  LossRecord sum;
  Gradients expected;
  for (const Batch& document : OneByOne(packed)) {
    ModelRunner alone(build, document, {.dtype = dtype});
    const LossRecord of_document = alone.Gradients();
    sum.loss_sum += of_document.loss_sum;
    sum.tokens += of_document.tokens;
    for (const auto& [name, gradient] : GradientsOf(alone)) {
      std::vector<double>& to = expected[name];
      to.resize(gradient.size(), 0.0);
      for (size_t i = 0; i < to.size(); ++i) to[i] += gradient[i];
    }
  }
  EXPECT_EQ(loss.tokens, sum.tokens);
  EXPECT_NEAR(loss.loss_sum, sum.loss_sum, tolerance * sum.loss_sum);
  for (const auto& [name, gradient] : GradientsOf(together)) {
    EXPECT_LT(testing::NormError(gradient, expected.at(name), 1e-2),
              10 * tolerance)
        << name;
  }
}

// What documents may be: shorter than a vector, longer than the row, of one
// token, as an empty one is, each row the end and the beginning of some.
const std::vector<std::vector<int64_t>> kLengths = {
    {7, 1, 1, 4}, {23}, {1}, {100}, {11, 12}, {5, 2, 30}};

TEST(Masked, PackedDocumentsAreTheDocumentsOneByOne) {
  for (const Model& model : Models(23)) {
    for (const auto& lengths : kLengths) {
      SCOPED_TRACE(::testing::Message()
                   << model.name << ", first " << lengths[0]);
      ExpectSumOfDocuments(model.build, Packed(3, 23, lengths), DType::kF64,
                           1e-13);
    }
  }
}

// The fast kernels, over several tiles. A sum of n terms is off by at most n
// roundings of 2^-24; the longest are over the 300 tokens.
TEST(Masked, PackedDocumentsAreTheDocumentsOneByOneInSinglePrecision) {
  for (const Model& model : Models(150)) {
    SCOPED_TRACE(model.name);
    ExpectSumOfDocuments(model.build, Packed(2, 150, {40, 1, 64, 9, 70, 3}),
                         DType::kF32, 300 * 0x1p-24);
  }
}

// One token of the first document of each row is another one: that document's
// logits may change, no bit of the rest does.
TEST(Masked, OtherDocumentsChangeNothing) {
  constexpr int64_t kT = 150;
  const Batch batch = Packed(2, kT, {40, 1, 64, 9, 70, 3});
  Batch other = batch;
  for (const int64_t row : {int64_t{0}, kT}) {
    At(other.tokens, row) = (At(other.tokens, row) + 1) % kVocab;
  }
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const Model& model : Models(kT)) {
      SCOPED_TRACE(model.name);
      const std::vector<double> a =
          ModelRunner(model.build, batch, {.dtype = dtype}).Logits();
      const std::vector<double> b =
          ModelRunner(model.build, other, {.dtype = dtype}).Logits();
      bool changed = false, first = true;
      for (size_t token = 0; token < batch.tokens.size(); ++token) {
        first = token % kT == 0 || (first && batch.positions[token] > 0);
        const auto begin = static_cast<std::ptrdiff_t>(token) * kVocab;
        const bool same = std::equal(
            a.begin() + begin, a.begin() + begin + kVocab, b.begin() + begin);
        changed = changed || !same;
        EXPECT_TRUE(first || same) << "token " << token;
      }
      EXPECT_TRUE(changed);
    }
  }
}

TEST(Masked, IsAnotherFunctionThanPacked) {
  const Batch masked = Packed(2, 23, {7, 1, 4});
  Batch packed = masked;
  packed.positions.clear();
  Batch one = masked;
  one.positions = testing::Positions(2, 23, {100});
  for (const Model& model : Models(23)) {
    SCOPED_TRACE(model.name);
    const auto loss = [&](const Batch& batch) {
      return ModelRunner(model.build, batch, {}).Loss().loss_sum;
    };
    EXPECT_GT(std::abs(loss(masked) - loss(packed)), 1e-3);
    // One document a row needs no mask.
    EXPECT_EQ(loss(one), loss(packed));
  }
}

TEST(Masked, GradientsMatchCentralDifferences) {
  for (const Model& model : Models(9)) {
    SCOPED_TRACE(model.name);
    testing::ExpectModelGradients(model.build, Packed(2, 9, {4, 1, 3}));
  }
}

}  // namespace
}  // namespace delink::masked_test
