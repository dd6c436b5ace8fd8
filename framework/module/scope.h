// Scope: each layer is constructed in one. A scope gives names that follow the
// structure of the code, and a module declares its parameters through it:
//
//   Linear(const Scope& s, const Config& c)
//       : weight_(s.Param("weight", {.shape = {c.out, c.in},
//                                    .init = Init::Normal(c.stddev)})) {}
//
// Building a model allocates nothing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/at.h"
#include "framework/module/param.h"

namespace delink {

// One declaration; the index in ParamRegistry::decls is its identity.
struct ParamDecl {
  std::string name;   // "blocks/3/attn/qkv/weight"
  std::string local;  // the same without the layer: "attn/qkv/weight"
  int layer = 0;      // index into the Sequential
  std::string part;   // "attention": the unit of sharing
  ParamSpec spec;
  int link = -1;  // the declaration this one is a permanent link to, or -1
  std::unique_ptr<Param> param;
};

struct ParamRegistry {
  std::vector<ParamDecl> decls;

  const ParamDecl& decl(int i) const { return At(decls, i); }
};

class Scope {
 public:
  explicit Scope(ParamRegistry& registry, DType dtype = DType::kF32)
      : registry_(&registry), dtype_(dtype) {}

  // A scope inside this one.
  Scope operator/(std::string_view name) const {
    Scope inner = *this;
    inner.path_ = Join(path_, name);
    inner.local_ = Join(local_, name);
    return inner;
  }
  // The same scope in another part; a part can be shared on its own.
  Scope Part(std::string_view part) const {
    Scope same = *this;
    same.part_ = part;
    return same;
  }
  // The scope of one layer of a Sequential.
  Scope Layer(int layer, std::string_view path) const {
    Scope same = *this;
    same.layer_ = layer;
    same.path_ = path;
    same.local_.clear();
    same.part_ = "other";
    return same;
  }

  // Declares a parameter. A name declared twice is a programmer's error.
  delink::Param& Param(std::string_view name, const ParamSpec& spec) const;
  // A permanent link to a parameter declared before, by its full name (a tied
  // head). Delinking keeps it.
  delink::Param& Link(std::string_view target) const;

  const std::string& path() const { return path_; }
  int layer() const { return layer_; }
  // The element type of weights and activations.
  DType dtype() const { return dtype_; }

 private:
  static std::string Join(const std::string& path, std::string_view name) {
    return path.empty() ? std::string(name) : path + "/" + std::string(name);
  }

  ParamRegistry* registry_;
  DType dtype_;
  std::string path_;
  std::string local_;
  std::string part_ = "other";
  int layer_ = 0;
};

}  // namespace delink
