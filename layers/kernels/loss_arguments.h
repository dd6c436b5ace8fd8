// Arguments of the loss kernels. Included by arguments.h; its contract, types
// and names of dimensions apply here too.
#pragma once

#include <cstdint>

namespace delink {

// Adds the cross-entropy of some rows, in row order, to *loss_sum, and their
// number to *count; then, if asked, turns the logits into their gradient,
// softmax - onehot(target), without 1/N. A row whose target is ignore_index
// adds nothing and gets a gradient of zeros.
struct CrossEntropyArgs {
  int64_t N, V;
  int64_t ld;              // elements between rows of logits, >= V
  void* logits;            // [N, V], becomes dlogits when want_grad
  const int32_t* targets;  // [N], each in [0, V) or ignore_index
  int32_t ignore_index;
  bool want_grad;
  double* row_loss;  // [N], device memory: the loss of each row, 0 if ignored
  double* loss_sum;  // [1], device memory, +=
  int64_t* count;    // [1], device memory, +=
  // z-loss: for each counted row, z = z_weight * (log sum exp of the logits)^2
  // is added to *z_sum, and the gradient of z to the row's gradient. The
  // pointers are null when z_weight is 0.
  double z_weight = 0;
  double* row_z = nullptr;  // [N], device memory: z of each row, 0 if ignored
  double* z_sum = nullptr;  // [1], device memory, +=
};

// Cross-entropy of logits that are sharded over ranks by columns; this rank has
// the columns of tokens [first_token, first_token + V). There are three steps;
// between them the maxima and the sums of all ranks are reduced.
// 1: the largest logit of each row; the lowest f32 if none is above it.
struct VocabMaxArgs {
  int64_t N, V;
  int64_t ld;
  const void* logits;  // [N, V]
  double* max;         // [N]
};
// 2: for each row sum exp(logit - max), and the logit of the target if this
// rank has it, else 0. Both are 0 if the target is ignore_index.
struct VocabSumsArgs {
  int64_t N, V;
  int64_t ld;
  const void* logits;  // [N, V]
  int64_t first_token;
  const int32_t* targets;  // [N], of the whole vocabulary, or ignore_index
  int32_t ignore_index;
  const double* max;  // [N], of all columns
  double* sums;       // [2, N]: exponentials, logits of targets
};
// 3: as cross_entropy, from the maxima and sums of all columns. Only one rank
// has `counts` true; on the others loss_sum, count and z_sum are not changed
// and may be null.
struct VocabCrossEntropyArgs {
  int64_t N, V;
  int64_t ld;
  void* logits;  // [N, V], becomes dlogits when want_grad
  int64_t first_token;
  const int32_t* targets;  // [N], as in VocabSumsArgs
  int32_t ignore_index;
  bool want_grad, counts;
  const double* max;   // [N]
  const double* sums;  // [2, N]
  double* row_loss;    // [N], as in CrossEntropyArgs, also without `counts`
  double* loss_sum;    // [1], +=
  int64_t* count;      // [1], +=
  double z_weight = 0;
  double* row_z = nullptr;  // [N]
  double* z_sum = nullptr;  // [1], +=
};

}  // namespace delink
