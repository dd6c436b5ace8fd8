#include "tests/recipes/run/experts.h"

#include <memory>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/tensor/bfloat16.h"
#include "layers/modules/attention.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"
#include "recipes/models/gpt_config.h"
#include "tests/recipes/run/block_models.h"

namespace delink::testing {
namespace {

constexpr int64_t kRows = 2;  // of each matrix

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

float FactorOf(int64_t expert, int64_t row) {
  return 1.0F + 0.25F * static_cast<float>(expert) -
         0.125F * static_cast<float>(row * expert % 5);
}

class ExpertsOp {
 public:
  ExpertsOp(const Scope& s, int64_t dim)
      : weight_(s.Param("weight", {.shape = {kExperts, kRows, dim},
                                   .init = Init::Normal(0.05),
                                   .split = Split::kExpert})),
        gain_(s.Param("gain", {.shape = {kExperts, 1},
                               .vectors = true,
                               .init = Init::Ones(),
                               .decay = false,
                               .split = Split::kExpert,
                               .exact = true})) {}

  Var operator()(Var x) {
    Tape& tape = x.tape();
    const int64_t dim = x.dim(-1);
    const Var y = tape.Output(x.shape(), x.dtype());
    const Var scale = tape.Output({dim}, DType::kF32);
    const Whole all = Gather(tape, tape.groups().expert, dim);
    if (tape.device().kind() == DeviceKind::kCpu) {
      Forward(x.value(), all, scale.value(), y.value());
    }
    tape.Record(
        {.name = "experts",
         .inputs = {x},
         .outputs = {y},
         .weight_saves = {},
         .saves = {x, scale},
         .by_token = true,
         .own_rows = true,
         .input = [=](Backward& back) { InputGradient(back, x, y, scale); },
         .weight = [=, *this](
                       Backward& back) mutable { WeightGradient(back, x, y); }},
        /*trains=*/true);
    return y;
  }

 private:
  struct Whole {
    Tensor weight, gain;
  };
  // Of all experts. `visit`: a Tape or a Backward.
  template <typename Visit>
  Whole Gather(Visit& visit, VisitGroup* group, int64_t dim) {
    const Tensor &weight = weight_.weight(), &gain = gain_.weight();
    if (group == nullptr) return {weight, gain};
    const Whole all = {visit.Scratch({kExperts * kRows * dim}, weight.dtype()),
                       visit.Scratch({kExperts}, gain.dtype())};
    for (const auto& [own, whole] :
         {std::pair{weight, all.weight}, std::pair{gain, all.gain}}) {
      DELINK_CHECK_EQ(own.elements() * group->size(), whole.elements());
      visit.device().Copy(
          visit.stream(),
          static_cast<char*>(whole.data()) + group->rank() * own.bytes(),
          own.data(), own.bytes());
      group->AllGather(whole.data(), own.elements(), own.dtype());
    }
    return all;
  }

  static void Forward(const Tensor& x, const Whole& all, const Tensor& scale,
                      const Tensor& y) {
    const int64_t dim = scale.elements();
    for (int64_t j = 0; j < dim; ++j) {
      float sum = 1;
      for (int64_t e = 0; e < kExperts; ++e) {
        for (int64_t row = 0; row < kRows; ++row) {
          sum += FactorOf(e, row) * Load(all.gain, e) *
                 Load(all.weight, (e * kRows + row) * dim + j);
        }
      }
      Store(scale, j, sum);
    }
    for (int64_t i = 0; i < x.elements(); ++i) {
      Store(y, i, Load(x, i) * Load(scale, i % dim));
    }
  }

  static void InputGradient(Backward& back, Var x, Var y, Var scale) {
    if (!x.needs_grad()) return;
    const Tensor dx = back.NewGrad(x), dy = back.grad(y);
    if (back.device().kind() != DeviceKind::kCpu) return;
    const int64_t dim = scale.value().elements();
    for (int64_t i = 0; i < dx.elements(); ++i) {
      Store(dx, i, Load(dy, i) * Load(scale.value(), i % dim));
    }
  }

  void WeightGradient(Backward& back, Var x, Var y) {
    const VisitGroups& groups = x.tape().groups();
    const int64_t dim = x.dim(-1);
    const Whole all = Gather(back, groups.expert, dim);
    const Whole sums = {back.Scratch({kExperts * kRows * dim}, DType::kF32),
                        back.Scratch({kExperts}, DType::kF32)};
    if (back.device().kind() == DeviceKind::kCpu) {
      // Tensor ranks that have the same rows give them once.
      const bool counts = groups.tensor == nullptr || groups.sequence ||
                          groups.tensor->rank() == 0;
      std::vector<float> by_column(static_cast<size_t>(dim));
      const Tensor dy = back.grad(y);
      for (int64_t i = 0; counts && i < dy.elements(); ++i) {
        by_column[static_cast<size_t>(i % dim)] +=
            Load(dy, i) * Load(x.value(), i);
      }
      for (int64_t e = 0; e < kExperts; ++e) {
        float of_gain = 0;
        for (int64_t row = 0; row < kRows; ++row) {
          for (int64_t j = 0; j < dim; ++j) {
            const int64_t at = (e * kRows + row) * dim + j;
            const float of_product =
                FactorOf(e, row) * by_column[static_cast<size_t>(j)];
            Store(sums.weight, at, Load(all.gain, e) * of_product);
            of_gain += Load(all.weight, at) * of_product;
          }
        }
        Store(sums.gain, e, of_gain);
      }
    }
    AddOwn(back, groups.expert, sums.weight, weight_.TakeGrad());
    AddOwn(back, groups.expert, sums.gain, gain_.TakeGrad());
  }

  // Adds this rank's piece of the sum over ranks.
  static void AddOwn(Backward& back, VisitGroup* group, const Tensor& whole,
                     const Param::GradTarget& target) {
    Tensor own = whole;
    const int64_t count = target.value.elements();
    if (group != nullptr) {
      own = back.Scratch({count}, DType::kF32);
      group->ReduceScatter(whole.data(), own.data(), count, DType::kF32);
    }
    if (back.device().kind() != DeviceKind::kCpu) return;
    for (int64_t i = 0; i < count; ++i) {
      const float before = target.accumulate ? Load(target.value, i) : 0;
      Store(target.value, i, before + Load(own, i));
    }
  }

  Param& weight_;
  Param& gain_;
};

class ExpertsBlock final : public Module {
 public:
  using Config = GptConfig;
  ExpertsBlock(const Scope& s, const GptConfig& c)
      : norm_(s / "norm", {.dim = c.dim}),
        attn_(s / "attn", {.dim = c.dim, .heads = c.heads}),
        op_((s / "mlp").Part("mlp"), c.dim) {}
  Var operator()(Var x) override { return op_(x + attn_(norm_(x))); }

 private:
  Norm norm_;
  Attention attn_;
  ExpertsOp op_;
};

}  // namespace

ModelList ModelsWithExperts() {
  ModelList models;
  AddModel(models, GptKind(), BuildOf<ExpertsBlock>);
  return models;
}

}  // namespace delink::testing
