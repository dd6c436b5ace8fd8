// Arguments of the kernels of optimizers that need whole matrices, Muon and
// Adafactor. As arguments.h.
#pragma once

#include "framework/optim/arguments.h"

namespace delink {

// Muon, before the matrix is made orthogonal:
//   m = momentum m + (1 - momentum) g'
//   u = nesterov ? (1 - momentum) g' + momentum m : m
// If the step is skipped, u does not change if it is g, and else becomes 0.
struct MuonMomentumArgs {
  const void* g = nullptr;  // [n]
  bool bf16_g = false;
  void* m = nullptr;  // [n]
  void* u = nullptr;  // [n], is made orthogonal; may be g if that has type T
  int64_t n = 0;
  double momentum = 0;
  bool nesterov = true;
  const UpdateControl* control = nullptr;
};

// x = u / max(norm, 1e-7), where norm^2 = sums[0] + ... in order. x has the
// type of Newton-Schulz: T or, with an f32 table and `narrow`, bf16.
struct MuonNormalizeArgs {
  const void* u = nullptr;  // [n]
  void* x = nullptr;        // [n]
  bool narrow = false;      // x is bf16
  int64_t n = 0;
  const double* sums = nullptr;  // [count]
  int64_t count = 0;
  double* scale = nullptr;  // becomes 1 / max(norm, 1e-7)
};

// y = a x + b y, all of type T or, with an f32 table and `narrow`, bf16.
struct ScaleAddArgs {
  const void* x = nullptr;  // [n]
  void* y = nullptr;        // [n]
  bool narrow = false;
  int64_t n = 0;
  double a = 0, b = 0;
};

// p = p (1 - lr * decay) - lr * factor * x. params.g is not used.
struct MuonStepArgs {
  UpdatedParams params;
  const void* x = nullptr;  // [n]
  bool narrow = false;      // x is bf16
  double factor = 1;
};

// sums[c] (=|+=) sum of squares of column c of g', in double: over runs of
// kColumnRun rows in order, then over the runs in order.
inline constexpr int64_t kColumnRun = 256;
struct ColumnSquaresArgs {
  const void* g = nullptr;  // [rows, columns]
  bool bf16_g = false;
  const UpdateControl* control = nullptr;
  int64_t rows = 0, columns = 0;
  double* partial = nullptr;  // [ceil(rows / kColumnRun), columns]
  double* sums = nullptr;     // [columns]
  bool accumulate = false;
};

// One step of Adafactor (Shazeer and Stern, "Adafactor: adaptive learning rates
// with sublinear memory cost", 2018) on a matrix, or on a vector (columns 0),
// in three calls, with b = update^-0.8. For a piece of a parameter the sums by
// row and by column must be those of the whole parameter. A piece also needs a
// call of `totals` between `sums` and `step`; the caller then adds up the
// totals of all pieces.
//
// `factors`: for a matrix, from the sums of squares of g' by row and by column,
//   r_i += b (row_i / columns - r_i),  c_j += b (column_j / rows - c_j)
// and *mean = mean of r; or, if not all rows are here, of c, which is the same
// number except for rounding. Does nothing for a vector: `sums` updates its v.
//
// `sums`: for a matrix v_ij = r_i / max(mean, eps^2) c_j, for a vector
// v_i += b (g'_i^2 - v_i). Then, with u = g' / sqrt(max(v, eps^2)), sums of
// u^2: of a matrix by row, of a vector by runs of kAdafactorRun elements. They
// are in double, element i of a row or run in lane i mod 16, as in sum_squares.
//
// `totals`: adds the sums of u^2 and, if relative, those of p^2 to totals[0]
// and totals[1], in order.
//
// `step`: with rms the root of a mean square, and p's sums in p_sums,
//   alpha = relative ? max(1e-3, rms(p)) min(lr, 1 / sqrt(update)) : lr
//   p = p (1 - lr * decay) - alpha / max(1, rms(u)) u
// and, with params.w given, w.
inline constexpr int64_t kAdafactorRun = 4096;
struct AdafactorArgs {
  UpdatedParams params;
  int64_t rows = 0, columns = 0;  // columns 0: a vector of rows elements
  int64_t all_rows = 0;           // of the whole parameter; 0: as here
  int64_t all_columns = 0;
  const double* row_sums = nullptr;     // [rows]
  const double* column_sums = nullptr;  // [columns]
  void* row = nullptr;                  // [rows], r
  void* column = nullptr;               // [columns], c
  void* v = nullptr;                    // [rows] of a vector
  double* mean = nullptr;
  double* u_sums = nullptr;        // [sums()]
  const double* p_sums = nullptr;  // [p_count]; relative only
  int64_t p_count = 0;
  double* totals = nullptr;  // [2], of all pieces; null: this is all
  double* step = nullptr;    // alpha / max(1, rms(u))
  double eps = 0;
  bool relative = true;
  int64_t update = 1;

  int64_t sums() const {
    return columns > 0 ? rows : (rows + kAdafactorRun - 1) / kAdafactorRun;
  }
  int64_t whole_rows() const { return all_rows > 0 ? all_rows : rows; }
  int64_t whole_columns() const {
    return all_columns > 0 ? all_columns : columns;
  }
  int64_t whole_elements() const {
    return columns > 0 ? whole_rows() * whole_columns() : whole_rows();
  }
};

}  // namespace delink
