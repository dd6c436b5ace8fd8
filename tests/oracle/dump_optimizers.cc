// Writes what each optimizer makes of the same gradients: for
// optimizer_oracle.py.
//
//   dump_optimizers FOLDER
//
// A file is a tensor of f64 as it lies in memory: PARAM.start, PARAM.gradients
// ([steps, elements]) and VARIANT/PARAM.end.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/optim/adafactor.h"
#include "framework/optim/first_order.h"
#include "framework/optim/muon.h"
#include "layers/ops/matrix_product.h"
#include "tests/framework/module/toy_model.h"

namespace delink {
namespace {

constexpr int64_t kSteps = 50;

// Matrices of every shape that Muon tells apart, a vector, and an embedding.
void Declare(ParamRegistry& registry) {
  const Scope root(registry);
  const Scope embed = root.Layer(0, "embed").Part("embedding");
  embed.Param("weight", {.shape = {23, 8}, .init = Init::Normal(0.5)});
  const Scope block = root.Layer(1, "blocks/0").Part("mlp");
  block.Param("wide", {.shape = {12, 40}, .init = Init::Normal(0.2)});
  block.Param("bias",
              {.shape = {17}, .init = Init::Normal(0.3), .decay = false});
  block.Param("tall", {.shape = {40, 12}, .init = Init::Normal(0.2)});
  block.Param(
      "stacked",
      {.shape = {18, 10}, .init = Init::Normal(0.2), .stacked = {10, 4, 4}});
}

void WriteFile(const std::filesystem::path& path,
               const std::vector<double>& values) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  DELINK_CHECK(file != nullptr) << path.string();
  DELINK_CHECK_EQ(std::fwrite(values.data(), 8, values.size(), file),
                  values.size());
  DELINK_CHECK(std::fclose(file) == 0) << path.string();
}

double Gradient(int decl, int64_t step, int64_t i) {
  // About the size of gradients behind clipping, and some of it lasting.
  const RngKey key =
      Fold(Fold(KeyFromSeed(3), static_cast<uint64_t>(decl)), "gradient");
  return 0.1 * Normal(key, static_cast<uint64_t>(i)) +
         0.1 * Normal(Fold(key, static_cast<uint64_t>(step + 1)),
                      static_cast<uint64_t>(i));
}

struct Variant {
  std::string name;
  std::unique_ptr<SlabOptimizer> optimizer;
  double clip_value = 0;
};

std::vector<Variant> Variants() {
  const Hyper hyper = {
      .decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .momentum = 0.9};
  const ParamRules rules(hyper);
  std::vector<Variant> variants;
  variants.push_back({"sgd", NewSgd({.has_momentum = false}, rules)});
  variants.push_back({"momentum", NewSgd({}, rules)});
  variants.push_back({"nesterov", NewSgd({.nesterov = true}, rules)});
  variants.push_back({"clip_value", NewSgd({}, rules), 0.05});
  variants.push_back({"lion", NewLion(rules)});
  variants.push_back({"adafactor", NewAdafactor({}, rules)});
  variants.push_back(
      {"adafactor_fixed", NewAdafactor({.relative = false}, rules)});
  variants.push_back({"muon", NewMuon({}, rules, MultiplyMatrices)});
  variants.push_back({"muon_rms", NewMuon({.scale = MuonConfig::Scale::kRms,
                                           .nesterov = false,
                                           .adamw_lr = 0.5},
                                          rules, MultiplyMatrices)});
  return variants;
}

void ForEachParam(
    const ParamStore& store,
    const std::function<void(int slab, const SlabParam&, std::string)>& visit) {
  for (size_t s = 0; s < store.slabs().size(); ++s) {
    for (const SlabParam& param : store.slabs()[s].params) {
      std::string name = store.registry().decl(param.decl).name;
      for (char& c : name) c = c == '/' ? '.' : c;
      visit(static_cast<int>(s), param, name);
    }
  }
}

std::vector<double> Values(const ParamStore& store, int slab,
                           const SlabParam& param) {
  const double* const at =
      static_cast<const double*>(store.at(slab, Plane::kWeight, param.offset));
  return {at, at + param.elements};
}

void Run(const ParamRegistry& registry, Device& device, Variant& variant,
         const std::filesystem::path& folder) {
  const auto store =
      testing::MakeStore(device, registry, 1, {}, 0,
                         {.dtype = DType::kF64,
                          .states = variant.optimizer->states(),
                          .whole_tensors = variant.optimizer->whole_tensors()});
  store->InitWeights(1);
  const auto stream = device.NewStream();
  std::vector<char> scratch(
      static_cast<size_t>(variant.optimizer->ScratchBytes(*store)) + 64);
  variant.optimizer->set_scratch(scratch.data());
  for (int64_t t = 1; t <= kSteps; ++t) {
    const UpdateControl control{.lr = 0.01 * static_cast<double>(t % 5 + 1),
                                .clip_value = variant.clip_value,
                                .clip_factor = 0.5};
    ForEachParam(*store, [&](int slab, const SlabParam& param,
                             const std::string&) {
      double* const g =
          static_cast<double*>(store->at(slab, Plane::kGradient, param.offset));
      for (int64_t i = 0; i < param.elements; ++i) {
        g[i] = 2 * Gradient(param.decl, t, i);
      }
    });
    for (size_t s = 0; s < store->slabs().size(); ++s) {
      variant.optimizer->Update(*stream, *store, static_cast<int>(s), &control,
                                t);
    }
  }
  ForEachParam(*store,
               [&](int slab, const SlabParam& param, const std::string& name) {
                 WriteFile(folder / variant.name / (name + ".end"),
                           Values(*store, slab, param));
               });
}

int Main(const std::filesystem::path& folder) {
  ParamRegistry registry;
  Declare(registry);
  const auto device = NewCpuDevice();
  const auto store =
      testing::MakeStore(*device, registry, 1, {}, 0, {.dtype = DType::kF64});
  store->InitWeights(1);
  ForEachParam(
      *store, [&](int slab, const SlabParam& param, const std::string& name) {
        WriteFile(folder / (name + ".start"), Values(*store, slab, param));
        std::vector<double> gradients;
        for (int64_t t = 1; t <= kSteps; ++t) {
          for (int64_t i = 0; i < param.elements; ++i) {
            gradients.push_back(Gradient(param.decl, t, i));
          }
        }
        WriteFile(folder / (name + ".gradients"), gradients);
      });
  for (Variant& variant : Variants()) {
    std::filesystem::create_directory(folder / variant.name);
    Run(registry, *device, variant, folder);
  }
  return 0;
}

}  // namespace
}  // namespace delink

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return delink::Main(argv[1]);
}
