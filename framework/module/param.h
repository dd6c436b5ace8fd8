// A parameter as a layer sees it: where its weight is now, and where to write
// its gradient. The memory belongs to the ParamStore; the executor binds it
// before a visit.
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
  friend bool operator==(const Init&, const Init&) = default;
};

// How a parameter may be cut, whatever the number of ranks: by rows (kOut) or
// by columns (kIn) over the tensor axis; several matrices or vectors whole
// (kExpert) over the expert axis, whose size must divide their number.
enum class Split : uint8_t { kNone, kOut, kIn, kExpert };

struct ParamSpec {
  // A vector [n], a matrix [out, in], or E matrices [E, out, in]. Each of E
  // matrices is cut and updated as if it were a parameter of its own.
  Shape shape;
  // Whether [E, n] is not a matrix but E vectors, as the biases of E matrices.
  bool vectors = false;
  Init init;
  bool decay = true;  // subject to weight decay
  Split split = Split::kNone;
  // Rows of each matrix if several are stacked in one (queries, keys and
  // values), or of its bias. Tensor parallelism cuts each matrix by itself, and
  // Muon updates each by itself. Empty: one matrix.
  std::vector<int64_t> stacked;
  // A cut parameter is cut at multiples of this many rows (kOut) or columns
  // (kIn): those of a head. If a matrix has fewer such units than there are
  // ranks, several ranks have the same unit.
  int64_t unit = 1;
  // A parameter that is not cut and normalises heads. A rank has only its own
  // heads, so its gradient is always a part of a sum.
  bool by_head = false;
  // A parameter of a block that writes to the residual stream. If all such
  // parameters of a block are zero, the block returns its input unchanged.
  bool residual = false;
  // Where weights are bf16, this one is f32 all the same, with its gradient and
  // state, and is its own master: a router's, or a bias of it.
  bool exact = false;
  // Of several matrices those that a token uses; 0: all.
  int64_t used = 0;
  // An exact vector with a bias for each of a router's experts, whose gradient
  // is 0. After each step an element moves by this much: up if the layer's
  // first sums (Tape::Sums) say fewer choices of its expert than the mean, down
  // if more. 0: it is no such bias.
  double balance_rate = 0;
  // An exact vector with the loads of a router's experts in the last step, by
  // those sums, relative to their mean. Its gradient is 0, too.
  bool router_loads = false;

  bool is_vector() const { return vectors || shape.rank() < 2; }
};

// The equal vectors or matrices of a parameter. With the parameter seen as a
// matrix (rect.h), number e has rows [e * rows, (e + 1) * rows); a single
// vector has one column, each of several has one row.
struct Entries {
  int64_t count = 1;
  int64_t rows = 0, columns = 0;
  int64_t elements() const { return rows * columns; }
};
inline Entries EntriesOf(const ParamSpec& spec) {
  const Shape& shape = spec.shape;
  if (shape.rank() < 2) return {.rows = shape.elements(), .columns = 1};
  if (spec.vectors) return {shape[0], 1, shape[1]};
  return {shape.rank() > 2 ? shape[0] : 1, shape[-2], shape[-1]};
}

class Param {
 public:
  // Where to write a gradient: with `+=` if `accumulate`, else with `=`.
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
  // gradients in forward), which then writes the whole gradient: f32 if weights
  // are f32 or bf16, else f64.
  GradTarget TakeGrad() {
    DELINK_CHECK(grad_.dtype() == StatisticsOf(grad_.dtype()))
        << "an op that writes gradients in f32 alone, where they are kept in "
           "bf16: take them by ops::SmallGradient, or by TakeGradAsKept";
    return TakeGradAsKept();
  }
  // The same for closures that support bf16 gradients too: such a closure sums
  // in f32, adds the old value if `accumulate`, and rounds once. With `parts`,
  // so many closures of a visit write a part of the gradient each.
  GradTarget TakeGradAsKept(int64_t parts = 1) {
    DELINK_CHECK(grad_.defined()) << "used outside a backward";
    GradTarget target{grad_, written_};
    if (++taken_ == parts) {
      written_ = true;
      taken_ = 0;
    }
    return target;
  }

  // The rows after these, if they lie in another slab because other ranks have
  // them too (ParamSpec::unit); null: there are no more rows.
  Param* rest() const { return rest_.get(); }

  // Called by the executor. `written`: the gradient already holds
  // contributions of this step.
  void Bind(const Tensor& weight, const Tensor& grad, bool written) {
    weight_ = weight;
    grad_ = grad;
    written_ = written;
    taken_ = 0;
  }
  bool written() const { return written_; }
  const Tensor& grad() const { return grad_; }
  // Sets or, with null, removes rest().
  void BindRest(std::unique_ptr<Param> rest) { rest_ = std::move(rest); }

 private:
  Tensor weight_;
  Tensor grad_;
  bool written_ = false;
  int64_t taken_ = 0;  // parts, since the whole was written
  std::unique_ptr<Param> rest_;
};

}  // namespace delink
