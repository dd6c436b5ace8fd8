#include "layers/ops/head_loss.h"

#include <algorithm>
#include <utility>

#include "layers/ops/kernels_of.h"
#include "layers/ops/linear.h"

namespace delink::ops {
namespace {

constexpr int64_t kChunkBytes = int64_t{8} << 20;
// A GPU multiplies faster by more than it reads faster: the gradient's way to
// memory and back needs thousands of rows to be a small part, and so do the
// tiles of a product that are left over in the last wave.
constexpr int64_t kCudaChunkBytes = int64_t{1} << 30;
// Rows that products are cut into tiles by; no more chunks come of it.
constexpr int64_t kCudaTileRows = 128;
// Fewer rows would make the weight's gradient, which every chunk reads and
// writes whole, cost more than it should: with 64 rows of 50 304 logits a fifth
// of the time was lost, with 256 three hundredths.
constexpr int64_t kMinChunkRows = 256;

// Rows [row, row + n) of x [N, D], with everything that stays the same.
struct Chunk {
  int64_t V, D;
  int64_t ld;  // elements between rows of logits
  int64_t row, n;
  const Tensor& x;
  const Tensor& w;
  const Tensor& logits;
  const Tensor& row_loss;  // [1 or 2, rows]: cross-entropy, z-loss
  double z_weight;

  void* Rows(const Tensor& of) const {
    return static_cast<char*>(of.data()) + row * D * SizeOf(of.dtype());
  }
};

// The chunk's logits, then their gradient when `want_grad`; sums to the loss.
void ForwardChunk(Tape& tape, const Kernels& kernels, const Chunk& c,
                  bool want_grad) {
  kernels.matmul(tape.stream(), {.m = c.n,
                                 .n = c.V,
                                 .k = c.D,
                                 .transpose_b = true,
                                 .a = c.Rows(c.x),
                                 .lda = c.D,
                                 .b = c.w.data(),
                                 .ldb = c.D,
                                 .c = c.logits.data(),
                                 .ldc = c.ld});
  LossRecord* const loss = tape.inputs().loss;
  double* const row_loss = static_cast<double*>(c.row_loss.data());
  kernels.cross_entropy(
      tape.stream(),
      {.N = c.n,
       .V = c.V,
       .ld = c.ld,
       .logits = c.logits.data(),
       .targets = tape.inputs().targets + c.row,
       .ignore_index = kIgnoreIndex,
       .want_grad = want_grad,
       .row_loss = row_loss,
       .loss_sum = &loss->loss_sum,
       .count = &loss->tokens,
       .z_weight = c.z_weight,
       .row_z = c.z_weight > 0 ? row_loss + c.row_loss.dim(1) : nullptr,
       .z_sum = &loss->z_sum});
}

// From the gradient of the chunk's logits: dx = dlogits w, dw (+)= dlogits^T x.
void BackwardChunk(Tape& tape, const Kernels& kernels, const Chunk& c,
                   const Tensor& dx, const Tensor& dw, bool accumulate) {
  if (dx.defined()) {
    kernels.matmul(tape.stream(), {.m = c.n,
                                   .n = c.D,
                                   .k = c.V,
                                   .a = c.logits.data(),
                                   .lda = c.ld,
                                   .b = c.w.data(),
                                   .ldb = c.D,
                                   .c = c.Rows(dx),
                                   .ldc = c.D});
  }
  kernels.matmul(tape.stream(), {.m = c.V,
                                 .n = c.D,
                                 .k = c.n,
                                 .transpose_a = true,
                                 .a = c.logits.data(),
                                 .lda = c.ld,
                                 .b = c.Rows(c.x),
                                 .ldb = c.D,
                                 .c = dw.data(),
                                 .ldc = c.D,
                                 .accumulate = accumulate,
                                 .c_is_gradient = dw.dtype() != DType::kBF16});
}

}  // namespace

int64_t HeadLossPitch(int64_t V, DType dtype) {
  const int64_t multiple = 16 / SizeOf(dtype);
  return (V + multiple - 1) / multiple * multiple;
}

int64_t HeadLossChunk(int64_t N, int64_t V, DType dtype, DeviceKind device) {
  const int64_t bytes = IsCuda(device) ? kCudaChunkBytes : kChunkBytes;
  const int64_t fit =
      bytes / (HeadLossPitch(std::max<int64_t>(V, 1), dtype) * SizeOf(dtype));
  const int64_t most = std::max(kMinChunkRows, fit);
  // Chunks of about the same size: none is a small rest.
  const int64_t chunks = std::max<int64_t>(1, (N + most - 1) / most);
  const int64_t rows = (N + chunks - 1) / chunks;
  if (!IsCuda(device)) return rows;
  const int64_t tiles = (rows + kCudaTileRows - 1) / kCudaTileRows;
  return std::min(N, tiles * kCudaTileRows);
}

void HeadLoss(Var x, Param& w, double z_weight) {
  const int64_t N = RowsOf(x.shape()), D = x.dim(-1), V = w.shape()[0];
  DELINK_CHECK_EQ(w.shape(), (Shape{V, D}));
  DELINK_CHECK_GT(N, 0);
  DELINK_CHECK_GE(z_weight, 0);
  Tape& tape = x.tape();
  DELINK_CHECK(tape.inputs().targets != nullptr);
  DELINK_CHECK(tape.inputs().loss != nullptr);
  const DType dtype = x.dtype();
  const Kernels& kernels = KernelsOf(tape, dtype);
  const bool recording = tape.recording();
  Var dx;
  Param::GradTarget dw;
  if (recording) {
    if (x.needs_grad()) dx = tape.Output(x.shape(), dtype);
    dw = w.TakeGradAsKept();
  }
  const int64_t rows = HeadLossChunk(N, V, dtype, tape.device().kind());
  const int64_t ld = HeadLossPitch(V, dtype);
  const Tensor logits = tape.Scratch({rows, ld}, dtype);
  const Tensor row_loss =
      tape.Scratch({z_weight > 0 ? 2 : 1, rows}, DType::kF64);
  const Tensor input = x.value();
  for (int64_t row = 0; row < N; row += rows) {
    const Chunk chunk{
        V,     D,          ld,     row,      std::min(rows, N - row),
        input, w.weight(), logits, row_loss, z_weight};
    ForwardChunk(tape, kernels, chunk, recording);
    if (!recording) continue;
    BackwardChunk(tape, kernels, chunk, dx.defined() ? dx.value() : Tensor(),
                  dw.value, dw.accumulate || row > 0);
  }
  const double flops = 2.0 * static_cast<double>(N * V * D);
  OpRecord op{.name = "head_loss",
              .inputs = {x},
              .flops = flops,
              .backward_flops = dx.defined() ? 2 * flops : flops};
  if (dx.defined()) {
    op.saves = {dx};
    op.input = [=](Backward& back) { back.UseGrad(dx, x); };
  }
  tape.Record(std::move(op));
}

Var HeadLogits(Var x, Param& w) { return Linear(x, w, nullptr); }

}  // namespace delink::ops
