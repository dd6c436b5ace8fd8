#include "tests/recipes/run/odd_models.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/tensor/bfloat16.h"
#include "layers/modules/attention.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"
#include "layers/ops/small_gradient.h"
#include "recipes/models/gpt_config.h"
#include "tests/recipes/run/block_models.h"

namespace delink::testing {
namespace {

float Load(const Tensor& x, int64_t i) {
  return x.dtype() == DType::kBF16 ? float{static_cast<BFloat16*>(x.data())[i]}
                                   : static_cast<float*>(x.data())[i];
}

void Store(const Tensor& x, int64_t i, float value) {
  if (x.dtype() == DType::kBF16) {
    static_cast<BFloat16*>(x.data())[i] = BFloat16(value);
  } else {
    static_cast<float*>(x.data())[i] = value;
  }
}

// y = x (1 + w), where column i takes element i % size of w.
class Scale {
 public:
  Scale(const Scope& s, int64_t size)
      : size_(size),
        weight_(s.Part(absl::StrCat("scale", size))
                    .Param(absl::StrCat("scale", size),
                           {.shape = {size}, .init = Init::Normal(0.1)})) {}

  Var operator()(Var x) {
    Tape& tape = x.tape();
    const Var y = tape.Output(x.shape(), x.dtype());
    if (OnHost(tape.device())) Multiply(x.value(), y.value());
    tape.Record(
        {.name = "scale",
         .inputs = {x},
         .outputs = {y},
         .saves = {x},
         .by_token = true,
         .own_rows = true,
         .input =
             [=, this](Backward& back) {
               if (!x.needs_grad()) return;
               const Tensor dx = back.NewGrad(x);
               if (OnHost(back.device())) Multiply(back.grad(y), dx);
             },
         .weight = [=, this](Backward& back) { WeightGradient(back, x, y); }},
        /*trains=*/true);
    return y;
  }

 private:
  static bool OnHost(const Device& device) {
    return device.kind() == DeviceKind::kCpu;
  }
  int64_t ElementOf(const Tensor& x, int64_t i) const {
    return i % x.dim(-1) % size_;
  }
  void Multiply(const Tensor& x, const Tensor& y) const {
    for (int64_t i = 0; i < x.elements(); ++i) {
      Store(y, i, Load(x, i) * (1 + Load(weight_.weight(), ElementOf(x, i))));
    }
  }
  void WeightGradient(Backward& back, Var x, Var y) {
    const Tensor dy = back.grad(y), sums = back.Scratch({size_}, DType::kF32);
    if (OnHost(back.device())) {
      std::vector<float> sum(static_cast<size_t>(size_));
      for (int64_t i = 0; i < dy.elements(); ++i) {
        sum[static_cast<size_t>(ElementOf(dy, i))] +=
            Load(dy, i) * Load(x.value(), i);
      }
      for (int64_t i = 0; i < size_; ++i) {
        Store(sums, i, sum[static_cast<size_t>(i)]);
      }
    }
    ops::AddSmallGradient(back, sums, weight_);
  }

  const int64_t size_;
  Param& weight_;
};

class OddBlock final : public Module {
 public:
  using Config = GptConfig;
  OddBlock(const Scope& s, const GptConfig& c)
      : scale29_(s, 29),
        mlp_(s / "mlp", {.dim = c.dim, .hidden = c.ffn}),
        scale3_(s, 3),
        norm2_(s / "norm2", {.dim = c.dim}),
        scale1_(s, 1),
        attn_(s / "attn", {.dim = c.dim, .heads = c.heads}),
        norm1_(s / "norm1", {.dim = c.dim}) {}

  Var operator()(Var x) override {
    const Var y = x + scale1_(attn_(norm1_(x)));
    return scale29_(y + mlp_(scale3_(norm2_(y))));
  }

 private:
  Scale scale29_;
  Mlp mlp_;
  Scale scale3_;
  Norm norm2_;
  Scale scale1_;
  Attention attn_;
  Norm norm1_;
};

}  // namespace

ModelList OddModels() {
  ModelList models;
  AddModel(models, GptKind(), BuildOf<OddBlock>);
  return models;
}

}  // namespace delink::testing
