#include "tests/recipes/run/bank_models.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "layers/modules/attention.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"
#include "layers/ops/gelu.h"
#include "layers/ops/linear.h"
#include "layers/ops/rows.h"
#include "recipes/models/gpt_config.h"
#include "tests/recipes/run/block_models.h"

namespace delink::testing {
namespace {

Tensor Slice(const Tensor& all, size_t at) {
  const Shape shape(all.shape().dims().subspan(1));
  const int64_t bytes = shape.elements() * SizeOf(all.dtype());
  return {static_cast<char*>(all.data()) + static_cast<int64_t>(at) * bytes,
          all.dtype(), shape};
}

// The entries of a parameter as parameters that ops take.
class Views {
 public:
  explicit Views(Param& of) : of_(of), views_(kBank) {}
  Param& operator[](size_t at) { return views_[at]; }

  void ShowWeights() {
    for (size_t e = 0; e < views_.size(); ++e) {
      views_[e].Bind(Slice(of_.weight(), e), Tensor(), false);
    }
  }
  void ShowGradients() {
    const Param::GradTarget grad = of_.TakeGradAsKept();
    for (size_t e = 0; e < views_.size(); ++e) {
      views_[e].Bind(Slice(of_.weight(), e), Slice(grad.value, e),
                     grad.accumulate);
    }
  }

 private:
  Param& of_;
  std::vector<Param> views_;
};

ParamSpec UpSpec(const GptConfig& c) {
  return {.shape = {c.ffn, c.dim},
          .init = Init::Normal(0.02),
          .split = Split::kOut};
}
ParamSpec BiasSpec(const GptConfig& c) {
  return {.shape = {c.ffn}, .decay = false, .split = Split::kOut};
}
ParamSpec DownSpec(const GptConfig& c) {
  return {.shape = {c.dim, c.ffn},
          .init = Init::Normal(0.02),
          .split = Split::kIn,
          .residual = true};
}

ParamSpec Several(ParamSpec spec) {
  spec.vectors = spec.shape.rank() == 1;
  std::vector<int64_t> dims = {kBank};
  for (const int64_t d : spec.shape.dims()) dims.push_back(d);
  spec.shape = Shape(std::span<const int64_t>(dims));
  return spec;
}

// The sum of MLPs that `up`, `bias` and `down` have by number.
template <typename Params>
Var SumOf(Var x, Params& up, Params& bias, Params& down) {
  const Var rows = ops::GatherRows(x);
  Var sum;
  for (size_t e = 0; e < kBank; ++e) {
    const Var hidden =
        ops::Gelu(ops::Linear(rows, up[e], &bias[e]), GeluForm::kTanh);
    const Var y = ops::Linear(hidden, down[e], nullptr);
    sum = e == 0 ? y : sum + y;
  }
  return ops::ScatterRows(sum);
}

class Together final : public Module {
 public:
  Together(const Scope& s, const GptConfig& c)
      : up_(s.Param("up", Several(UpSpec(c)))),
        down_(s.Param("down", Several(DownSpec(c)))),
        bias_(s.Param("bias", Several(BiasSpec(c)))) {}

  Var operator()(Var x) override {
    ShowWeights();
    const Var sum = SumOf(x, up_, bias_, down_);
    // The last op is the first of backward, which may be of another binding.
    const Var y = sum.tape().Alias(sum);
    sum.tape().Record({.name = "views",
                       .inputs = {sum},
                       .outputs = {y},
                       .by_token = true,
                       .own_rows = true,
                       .input =
                           [=, this](Backward& back) {
                             ShowWeights();
                             back.PassGrad(y, sum);
                           },
                       .weight =
                           [this](Backward&) {
                             up_.ShowGradients();
                             bias_.ShowGradients();
                             down_.ShowGradients();
                           }},
                      /*trains=*/true);
    return y;
  }

 private:
  void ShowWeights() {
    up_.ShowWeights();
    bias_.ShowWeights();
    down_.ShowWeights();
  }

  Views up_, down_, bias_;
};

class Apart final : public Module {
 public:
  Apart(const Scope& s, const GptConfig& c)
      : up_(s / "up", UpSpec(c)),
        down_(s / "down", DownSpec(c)),
        bias_(s / "bias", BiasSpec(c)) {}

  Var operator()(Var x) override { return SumOf(x, up_, bias_, down_); }

 private:
  class Params {
   public:
    Params(const Scope& s, const ParamSpec& spec) {
      for (int64_t e = 0; e < kBank; ++e) {
        params_.push_back(&s.Param(absl::StrCat(e), spec));
      }
    }
    Param& operator[](size_t at) { return *params_[at]; }

   private:
    std::vector<Param*> params_;
  };

  Params up_, down_, bias_;
};

template <typename Bank>
class Block final : public Module {
 public:
  using Config = GptConfig;
  Block(const Scope& s, const GptConfig& c)
      : norm1_(s / "norm1", {.dim = c.dim}),
        attn_(s / "attn", {.dim = c.dim, .heads = c.heads}),
        norm2_(s / "norm2", {.dim = c.dim}),
        bank_((s / "mlp").Part("mlp"), c) {}
  Var operator()(Var x) override {
    const auto [y, normed] = norm2_.Add(x, attn_(norm1_(x)));
    return y + bank_(normed);
  }

 private:
  Norm norm1_;
  Attention attn_;
  Norm norm2_;
  Bank bank_;
};

template <typename Bank>
std::unique_ptr<Sequential> Build(const Scope& s, const ModelConfig& config) {
  const auto* const own = dynamic_cast<const GptConfig*>(&config);
  DELINK_CHECK(own != nullptr);
  return BuildOf<Block<Bank>>(s, *own);
}

constexpr char kTheirs[] = "transformer.h.{i}.mlp.experts.{e}.";

ModelList Models(ModelBuilder build,
                 const std::vector<huggingface::TensorRule>& bank) {
  ModelList models = BuiltInModels();
  for (ModelEntry& entry : models) {
    if (entry.kind.name != "gpt") continue;
    entry.build = std::move(build);
    auto& rules = entry.families.at(0).tensors;
    std::erase_if(rules, [](const huggingface::TensorRule& rule) {
      return absl::StrContains(rule.ours, "/mlp/");
    });
    rules.insert(rules.end(), bank.begin(), bank.end());
    break;
  }
  return models;
}

}  // namespace

ModelList BanksTogether() {
  const std::string theirs = kTheirs;
  return Models(Build<Together>,
                {{"blocks/{i}/mlp/up", {theirs + "up.weight"}},
                 {"blocks/{i}/mlp/bias", {theirs + "up.bias"}},
                 {"blocks/{i}/mlp/down", {theirs + "down.weight"}}});
}

ModelList BanksTogetherWhole() {
  const std::string theirs = "transformer.h.{i}.mlp.";
  return Models(Build<Together>, {{.ours = "blocks/{i}/mlp/up",
                                   .theirs = {theirs + "up"},
                                   .transposed = true},
                                  {"blocks/{i}/mlp/bias", {theirs + "bias"}},
                                  {"blocks/{i}/mlp/down", {theirs + "down"}}});
}

ModelList BanksApart() {
  std::vector<huggingface::TensorRule> rules;
  for (int64_t e = 0; e < kBank; ++e) {
    const auto add = [&](const char* ours, const char* theirs) {
      rules.push_back(
          {absl::StrCat("blocks/{i}/mlp/", ours, "/", e),
           {absl::StrCat("transformer.h.{i}.mlp.experts.", e, ".", theirs)}});
    };
    add("up", "up.weight");
    add("bias", "up.bias");
    add("down", "down.weight");
  }
  return Models(Build<Apart>, rules);
}

TinyFolder BankFolder(bool whole) {
  constexpr int64_t kLayers = 4, kDim = 32, kFfn = 4 * kDim;
  TinyFolder folder = TinyGpt2();
  std::erase_if(folder.tensors, [](const auto& tensor) {
    return absl::StrContains(tensor.first, ".mlp.");
  });
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string mlp = absl::StrCat("transformer.h.", i, ".mlp.");
    if (whole) {
      folder.Add(mlp + "up", {kBank, kDim, kFfn});
      folder.Add(mlp + "bias", {kBank, kFfn});
      folder.Add(mlp + "down", {kBank, kDim, kFfn});
      continue;
    }
    for (int64_t e = 0; e < kBank; ++e) {
      const std::string expert = absl::StrCat(mlp, "experts.", e, ".");
      folder.Add(expert + "up.weight", {kFfn, kDim});
      folder.Add(expert + "up.bias", {kFfn});
      folder.Add(expert + "down.weight", {kDim, kFfn});
    }
  }
  return folder;
}

}  // namespace delink::testing
