// A parameter as a layer sees it: where its weight is right now, and where its
// gradient goes. The memory belongs to the ParamStore; the executor binds it
// before a visit, and layers never ask for it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace delink {

struct Init {
  enum class Kind : uint8_t { kZeros, kOnes, kNormal };
  Kind kind = Kind::kZeros;
  double stddev = 0;

  static Init Zeros() { return {Kind::kZeros, 0}; }
  static Init Ones() { return {Kind::kOnes, 0}; }
  static Init Normal(double stddev) { return {Kind::kNormal, stddev}; }
};

// How tensor parallelism may cut a parameter: a statement of mathematics, not
// of ranks.
enum class Split : uint8_t { kNone, kOut, kIn };

struct ParamSpec {
  Shape shape;
  Init init;
  bool decay = true;  // subject to weight decay
  Split split = Split::kNone;
  // Rows of each matrix where several are stacked in one (queries, keys and
  // values), or of its bias: what takes a matrix for a map, as Muon, takes them
  // apart, and each is cut by itself. Empty: it is one.
  std::vector<int64_t> stacked;
  // What is cut is cut between so many rows (kOut), or columns (kIn): those of
  // a head. Where a matrix has fewer such units than there are ranks, several
  // have the same one.
  int64_t unit = 1;
  // Of what is not cut: heads are normalised by it, of which a rank has its own
  // alone, so that its gradient is always a part of a sum.
  bool by_head = false;
  // Of a block, and writes to the residual stream: where all such parameters of
  // a block are zero, the block hands on its input as it is.
  bool residual = false;
};

class Param {
 public:
  // Where a gradient goes: `=` unless `accumulate`, then `+=`.
  struct GradTarget {
    Tensor value;
    bool accumulate = false;
  };

  // Valid during a visit.
  const Tensor& weight() const {
    DELINK_CHECK(weight_.defined()) << "used outside a visit";
    return weight_;
  }
  const Shape& shape() const { return weight_.shape(); }

  // Called once by each weight closure (or by a loss that computes its
  // gradients in forward), which then writes all of the gradient: f32 beside
  // weights of f32 or bf16, else f64.
  GradTarget TakeGrad() {
    DELINK_CHECK(grad_.dtype() == StatisticsOf(grad_.dtype()))
        << "an op that writes gradients in f32 alone, where they are kept in "
           "bf16: take them by ops::SmallGradient, or by TakeGradAsKept";
    return TakeGradAsKept();
  }
  // The same for who looks at its type: it may be bf16, too. Then a closure
  // sums in f32, adds what is there where it is to, and rounds once.
  GradTarget TakeGradAsKept() {
    DELINK_CHECK(grad_.defined()) << "used outside a backward";
    GradTarget target{grad_, written_};
    written_ = true;
    return target;
  }

  // The rows behind these, where they lie elsewhere, because other ranks have
  // them too (ParamSpec::unit); null: these are all.
  Param* rest() const { return rest_.get(); }

  // For the executor. `written`: the gradient already holds contributions of
  // this step.
  void Bind(const Tensor& weight, const Tensor& grad, bool written) {
    weight_ = weight;
    grad_ = grad;
    written_ = written;
  }
  bool written() const { return written_; }
  const Tensor& grad() const { return grad_; }
  // The same for rest(), made when it is first asked for; null takes it away.
  void BindRest(std::unique_ptr<Param> rest) { rest_ = std::move(rest); }

 private:
  Tensor weight_;
  Tensor grad_;
  bool written_ = false;
  std::unique_ptr<Param> rest_;
};

}  // namespace delink
