#include "layers/ops/head_loss.h"

#include <algorithm>
#include <utility>

#include "framework/module/even_piece.h"
#include "layers/ops/kernels_of.h"
#include "layers/ops/linear.h"

namespace delink::ops {
namespace {

constexpr int64_t kChunkBytes = int64_t{8} << 20;
// On a GPU products are fast compared with memory. Only with thousands of rows
// do two costs become a small part of the time: writing and reading the
// gradient, and the tiles of a product that are left for the last wave.
constexpr int64_t kCudaChunkBytes = int64_t{1} << 30;
// Rows of a product's tile; chunks are rounded up to whole tiles.
constexpr int64_t kCudaTileRows = 128;
// Every chunk reads and writes the whole gradient of the weight, which costs
// too much with fewer rows: with 64 rows of 50 304 logits a fifth of the time,
// with 256 three hundredths.
constexpr int64_t kMinChunkRows = 256;

// This rank's piece of the vocabulary, and the size of the largest piece.
struct Piece {
  int64_t first, V, most;
};

Piece PieceOf(const Tape& tape, const Param& w, int64_t vocab) {
  const int64_t V = w.shape()[0];
  const VisitGroup* const group = tape.groups().tensor;
  if (group == nullptr) {
    DELINK_CHECK(vocab == 0 || vocab == V) << V << " rows of " << vocab;
    return {0, V, V};
  }
  const Range own = EvenPiece(vocab, group->rank(), group->size());
  DELINK_CHECK_EQ(own.size(), V) << "rows of a vocabulary of " << vocab;
  return {own.begin, V, (vocab + group->size() - 1) / group->size()};
}

// Rows [row, row + n) of x [N, D], and the data that all chunks share.
struct Chunk {
  int64_t first, V, D;  // as Piece
  int64_t ld;           // elements between rows of logits
  int64_t row, n;
  const Tensor& x;
  const Tensor& w;
  const Tensor& logits;
  const Tensor& row_loss;    // [1 or 2, rows]: cross-entropy, z-loss
  const Tensor& statistics;  // [3, rows] of several ranks: maxima, sums
  double z_weight;

  void* Rows(const Tensor& of) const {
    return static_cast<char*>(of.data()) + row * D * SizeOf(of.dtype());
  }
};

// The loss of logits that are sharded over ranks by columns.
void LossOfColumns(Tape& tape, const Kernels& kernels, const Chunk& c,
                   bool want_grad) {
  VisitGroup& group = *tape.groups().tensor;
  LossRecord* const loss = tape.inputs().loss;
  const int32_t* const targets = tape.inputs().targets + c.row;
  double* const max = static_cast<double*>(c.statistics.data());
  double* const sums = max + c.n;
  double* const row_loss = static_cast<double*>(c.row_loss.data());
  kernels.vocab_max(
      tape.stream(),
      {.N = c.n, .V = c.V, .ld = c.ld, .logits = c.logits.data(), .max = max});
  group.AllReduce(max, c.n, DType::kF64, VisitGroup::Reduction::kMax);
  kernels.vocab_sums(tape.stream(), {.N = c.n,
                                     .V = c.V,
                                     .ld = c.ld,
                                     .logits = c.logits.data(),
                                     .first_token = c.first,
                                     .targets = targets,
                                     .ignore_index = kIgnoreIndex,
                                     .max = max,
                                     .sums = sums});
  group.AllReduce(sums, 2 * c.n, DType::kF64, VisitGroup::Reduction::kSum);
  kernels.vocab_cross_entropy(
      tape.stream(),
      {.N = c.n,
       .V = c.V,
       .ld = c.ld,
       .logits = c.logits.data(),
       .first_token = c.first,
       .targets = targets,
       .ignore_index = kIgnoreIndex,
       .want_grad = want_grad,
       .counts = group.rank() == 0,
       .max = max,
       .sums = sums,
       .row_loss = row_loss,
       .loss_sum = &loss->loss_sum,
       .count = &loss->tokens,
       .z_weight = c.z_weight,
       .row_z = c.z_weight > 0 ? row_loss + c.row_loss.dim(1) : nullptr,
       .z_sum = &loss->z_sum});
}

// Computes the chunk's logits and adds to the loss; with `want_grad` the logits
// become their gradient.
void ForwardChunk(Tape& tape, const Kernels& kernels, const Chunk& c,
                  bool want_grad) {
  if (c.V > 0) {
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
  }
  if (tape.groups().tensor != nullptr) {
    return LossOfColumns(tape, kernels, c, want_grad);
  }
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
  if (c.V == 0) {  // the vocabulary has fewer tokens than ranks
    if (!dx.defined()) return;
    return tape.device().FillZero(tape.stream(), c.Rows(dx),
                                  c.n * c.D * SizeOf(dx.dtype()));
  }
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

// All columns [B, T, V] from each rank's own piece of them.
Var JoinColumns(Var own, int64_t vocab) {
  Tape& tape = own.tape();
  VisitGroup& group = *tape.groups().tensor;
  const int64_t N = RowsOf(own.shape());
  const DType dtype = own.dtype();
  const Range mine = EvenPiece(vocab, group.rank(), group.size());
  const int64_t slot = N * ((vocab + group.size() - 1) / group.size());
  const int64_t size = SizeOf(dtype);
  const Tensor all = tape.Scratch({group.size(), slot}, dtype);
  tape.device().FillZero(tape.stream(), all.data(), all.bytes());
  tape.device().Copy(
      tape.stream(),
      static_cast<char*>(all.data()) + group.rank() * slot * size, own.data(),
      own.value().bytes());
  group.AllGather(all.data(), slot, dtype);
  const Var y = tape.Output({own.dim(0), own.dim(1), vocab}, dtype);
  for (int rank = 0; rank < group.size(); ++rank) {
    const Range piece = EvenPiece(vocab, rank, group.size());
    tape.device().CopyRows(
        tape.stream(),
        {.to = static_cast<char*>(y.data()) + piece.begin * size,
         .to_pitch = vocab * size,
         .from = static_cast<char*>(all.data()) + rank * slot * size,
         .from_pitch = piece.size() * size,
         .bytes = piece.size() * size,
         .rows = N});
  }
  tape.Record({.name = "join_columns",
               .inputs = {own},
               .outputs = {y},
               .by_token = true,
               .input = [=](Backward& back) {
                 if (!own.needs_grad()) return;
                 const int64_t width = mine.size() * size;
                 void* const to = back.NewGrad(own).data();
                 const char* const from =
                     static_cast<const char*>(back.grad(y).data());
                 back.device().CopyRows(back.stream(),
                                        {.to = to,
                                         .to_pitch = width,
                                         .from = from + mine.begin * size,
                                         .from_pitch = vocab * size,
                                         .bytes = width,
                                         .rows = N});
               }});
  return y;
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
  // Chunks have about the same size, so that none is a small rest.
  const int64_t chunks = std::max<int64_t>(1, (N + most - 1) / most);
  const int64_t rows = (N + chunks - 1) / chunks;
  if (!IsCuda(device)) return rows;
  const int64_t tiles = (rows + kCudaTileRows - 1) / kCudaTileRows;
  return std::min(N, tiles * kCudaTileRows);
}

void HeadLoss(Var x, Param& w, double z_weight, int64_t vocab) {
  Tape& tape = x.tape();
  const Piece piece = PieceOf(tape, w, vocab);
  const int64_t N = RowsOf(x.shape()), D = x.dim(-1), V = piece.V;
  DELINK_CHECK_EQ(w.shape(), (Shape{V, D}));
  DELINK_CHECK_GT(N, 0);
  DELINK_CHECK_GE(z_weight, 0);
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
  // The same on all ranks.
  const int64_t rows =
      HeadLossChunk(N, piece.most, dtype, tape.device().kind());
  const int64_t ld = HeadLossPitch(V, dtype);
  const Tensor logits = tape.Scratch({rows, ld}, dtype);
  const Tensor row_loss =
      tape.Scratch({z_weight > 0 ? 2 : 1, rows}, DType::kF64);
  const Tensor statistics = tape.groups().tensor != nullptr
                                ? tape.Scratch({3, rows}, DType::kF64)
                                : Tensor();
  const Tensor input = x.value();
  for (int64_t row = 0; row < N; row += rows) {
    const Chunk chunk{.first = piece.first,
                      .V = V,
                      .D = D,
                      .ld = ld,
                      .row = row,
                      .n = std::min(rows, N - row),
                      .x = input,
                      .w = w.weight(),
                      .logits = logits,
                      .row_loss = row_loss,
                      .statistics = statistics,
                      .z_weight = z_weight};
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

Var HeadLogits(Var x, Param& w, int64_t vocab) {
  (void)PieceOf(x.tape(), w, vocab);
  const Var own = Linear(x, w, nullptr);
  return x.tape().groups().tensor != nullptr ? JoinColumns(own, vocab) : own;
}

}  // namespace delink::ops
