// Causal attention with context parallelism: each rank has a part of each row.
// A row of T tokens is cut into 2 c chunks for c ranks. Rank i has the chunks i
// and 2 c - 1 - i, so that all ranks see the same number of keys. All keys and
// values are gathered and put in order; then each of the rank's two chunks of
// queries attends to the keys up to its own end. Backward does not keep them
// but gathers them again, adds the gradients of both chunks and sums those of
// all ranks.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "framework/base/check.h"
#include "layers/ops/attention_heads.h"
#include "layers/ops/kernels_of.h"

namespace delink::ops {
namespace {

constexpr int kChunks = 2;  // of each rank

class Context {
 public:
  Context(const Heads& heads, DType dtype, const VisitGroup& group)
      : s_(heads), dtype_(dtype), rank_(group.rank()), ranks_(group.size()) {
    DELINK_CHECK_EQ(s_.T % kChunks, 0) << "rows of " << s_.T * ranks_;
  }

  int64_t chunk() const { return s_.T / kChunks; }  // tokens
  int64_t all() const { return s_.T * ranks_; }     // tokens of a row
  int64_t width() const { return 2 * s_.Hkv * s_.Dh; }
  int64_t own() const { return s_.B * s_.T * width(); }  // elements
  Shape shape() const { return {s_.B, all(), width()}; }
  HeadStrides strides() const { return {all() * width(), width()}; }
  // The number in the row of the rank's chunk `i`, and the keys that it sees.
  int64_t Number(int i) const { return i == 0 ? rank_ : NumberOf(rank_); }
  int64_t Keys(int i) const { return (Number(i) + 1) * chunk(); }

  // Copies keys and values between [B, T, row] and [B, T, width].
  void Pack(Device& device, Stream& stream, const void* qkv, void* kv) const {
    device.CopyRows(stream, {.to = kv,
                             .to_pitch = Bytes(width()),
                             .from = At(qkv, s_.H * s_.Dh),
                             .from_pitch = Bytes(s_.row()),
                             .bytes = Bytes(width()),
                             .rows = s_.B * s_.T});
  }
  void Unpack(Device& device, Stream& stream, const void* kv, void* qkv) const {
    device.CopyRows(stream, {.to = At(qkv, s_.H * s_.Dh),
                             .to_pitch = Bytes(s_.row()),
                             .from = kv,
                             .from_pitch = Bytes(width()),
                             .bytes = Bytes(width()),
                             .rows = s_.B * s_.T});
  }

  // Copies between [B, all, width], rows in order, and [c, B, T, width].
  void Sort(Device& device, Stream& stream, const void* by_rank,
            void* rows) const {
    ForEachChunk([&](int64_t in_rank, int64_t in_row) {
      device.Copy(stream, At(rows, in_row), At(by_rank, in_rank),
                  Bytes(chunk() * width()));
    });
  }
  void Unsort(Device& device, Stream& stream, const void* rows,
              void* by_rank) const {
    ForEachChunk([&](int64_t in_rank, int64_t in_row) {
      device.Copy(stream, At(by_rank, in_rank), At(rows, in_row),
                  Bytes(chunk() * width()));
    });
  }

  // The address `elements` elements after x.
  void* At(const void* x, int64_t elements) const {
    return const_cast<char*>(static_cast<const char*>(x)) + Bytes(elements);
  }
  int64_t Bytes(int64_t elements) const { return elements * SizeOf(dtype_); }

  const Heads& heads() const { return s_; }

 private:
  // The second chunk of a rank.
  int64_t NumberOf(int64_t rank) const { return kChunks * ranks_ - 1 - rank; }
  template <typename Visit>
  void ForEachChunk(Visit visit) const {
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      for (int64_t b = 0; b < s_.B; ++b) {
        const int64_t here = rank * own() + b * s_.T * width();
        const int64_t row = b * all() * width();
        const int64_t size = chunk() * width();
        visit(here, row + rank * size);
        visit(here + size, row + NumberOf(rank) * size);
      }
    }
  }

  Heads s_;
  DType dtype_;
  int rank_, ranks_;
};

// Keys and values of all ranks, in order. `visit` is a Tape or a Backward.
template <typename Visit>
void GatherKeys(Visit& visit, const Context& context, VisitGroup& group,
                const Tensor& qkv, const Tensor& by_rank, const Tensor& rows) {
  Device& device = visit.device();
  context.Pack(device, visit.stream(), qkv.data(),
               Offset(by_rank, group.rank() * context.own()));
  group.AllGather(by_rank.data(), context.own(), qkv.dtype());
  context.Sort(device, visit.stream(), by_rank.data(), rows.data());
}

// Arguments for the rank's chunk `i` of queries.
template <typename Args>
void SetArgs(const Context& context, int i, const Tensor& qkv,
             const Tensor& keys, Args& args) {
  const Heads& s = context.heads();
  args.B = s.B;
  args.H = s.H;
  args.Hkv = s.Hkv;
  args.Dh = s.Dh;
  args.Tq = context.chunk();
  args.Tk = context.Keys(i);
  args.scale = s.scale();
  args.window = s.window;
  args.positions = s.positions;
  args.positions_row = context.all();
  args.q = Offset(qkv, i * context.chunk() * s.row());
  args.q_strides = s.packed();
  args.k = keys.data();
  args.v = Offset(keys, s.Hkv * s.Dh);
  args.kv_strides = context.strides();
  args.o_strides = s.output();
}

// The most that any chunk of any rank needs, so that all ranks use the same.
template <typename Args>
int64_t ScratchBytes(const Context& context, Args args,
                     int64_t (*bytes)(const Args&, int)) {
  int64_t most = bytes(args, kAllThreads);
  for (args.Tk = context.chunk(); args.Tk <= context.all();
       args.Tk += context.chunk()) {
    most = std::max(most, bytes(args, kAllThreads));
  }
  return most;
}

void Forward(Tape& tape, const Context& context, Var qkv, Var o, Var lse,
             const Tensor& keys) {
  const Heads& s = context.heads();
  const Kernels& kernels = KernelsOf(tape, qkv.dtype());
  Tensor scratch;
  for (int i = 0; i < kChunks; ++i) {
    AttentionForwardArgs args{};
    SetArgs(context, i, qkv.value(), keys, args);
    args.o = Offset(o.value(), i * context.chunk() * s.H * s.Dh);
    if (lse.defined()) {
      args.lse = Offset(lse.value(), i * s.B * s.H * context.chunk());
    }
    args.scratch_bytes =
        ScratchBytes(context, args, kernels.attention_forward_scratch_bytes);
    if (args.scratch_bytes > 0) {
      if (!scratch.defined()) {
        scratch = tape.Scratch({args.scratch_bytes}, DType::kU8);
      }
      args.scratch = scratch.data();
    }
    kernels.attention_forward(tape.stream(), args);
  }
}

// Gradients of the rank's queries, and of all keys and values into `sum`;
// `part` is memory of its size.
void Chunks(Backward& back, const Context& context, Var qkv, Var o, Var lse,
            const Tensor& keys, const Tensor& dqkv, const Tensor& sum,
            const Tensor& part) {
  const Heads& s = context.heads();
  const Kernels& kernels = KernelsOf(qkv.tape(), qkv.dtype());
  const Tensor delta = back.Scratch({s.B, s.H, context.chunk()}, lse.dtype());
  const int64_t row = context.all() * context.width();
  Tensor scratch;
  // The second chunk comes first, since it sees all keys of the first and more.
  for (int i = kChunks - 1; i >= 0; --i) {
    const Tensor& dkeys = i == 0 ? part : sum;
    AttentionBackwardArgs args{};
    SetArgs(context, i, qkv.value(), keys, args);
    const int64_t first = i * context.chunk() * s.H * s.Dh;
    args.o = Offset(o.value(), first);
    args.d_o = Offset(back.grad(o), first);
    args.lse = Offset(lse.value(), i * s.B * s.H * context.chunk());
    args.dq = Offset(dqkv, i * context.chunk() * s.row());
    args.dk = dkeys.data();
    args.dv = Offset(dkeys, s.Hkv * s.Dh);
    args.delta = delta.data();
    args.deterministic = qkv.tape().inputs().deterministic;
    args.scratch_bytes =
        ScratchBytes(context, args, kernels.attention_backward_scratch_bytes);
    if (args.scratch_bytes > 0) {
      if (!scratch.defined()) {
        scratch = back.Scratch({args.scratch_bytes}, DType::kU8);
      }
      args.scratch = scratch.data();
    }
    kernels.attention_backward(back.stream(), args);
    const int64_t seen = args.Tk * context.width();
    for (int64_t b = 0; b < s.B; ++b) {
      if (i == 0) {
        kernels.accumulate(back.stream(), {.count = seen,
                                           .x = Offset(part, b * row),
                                           .y = Offset(sum, b * row)});
      } else {
        back.device().FillZero(back.stream(), Offset(sum, b * row + seen),
                               context.Bytes(row - seen));
      }
    }
  }
}

void InputGrad(Backward& back, const Context& context, Var qkv, Var o, Var lse,
               Var kept) {
  if (!qkv.needs_grad()) return;
  VisitGroup& group = *qkv.tape().groups().context;
  const Tensor dqkv = back.NewGrad(qkv);
  const Tensor by_rank = back.Scratch(context.shape(), qkv.dtype());
  const Tensor sum = back.Scratch(context.shape(), qkv.dtype());
  Tensor keys;
  if (kept.defined()) {
    keys = kept.value();
  } else {
    keys = back.Scratch(context.shape(), qkv.dtype());
    GatherKeys(back, context, group, qkv.value(), by_rank, keys);
  }
  Chunks(back, context, qkv, o, lse, keys, dqkv, sum, by_rank);
  context.Unsort(back.device(), back.stream(), sum.data(), by_rank.data());
  // `sum` is not read any more.
  group.ReduceScatter(by_rank.data(), sum.data(), context.own(), qkv.dtype());
  context.Unpack(back.device(), back.stream(), sum.data(), dqkv.data());
}

}  // namespace

Var ContextAttention(Var qkv, const Heads& s) {
  Tape& tape = qkv.tape();
  const DType dtype = qkv.dtype();
  VisitGroup& group = *tape.groups().context;
  const Context context(s, dtype, group);
  const Var o = tape.Output({s.B, s.T, s.H * s.Dh}, dtype);
  Var lse, kept;
  Tensor keys;
  if (tape.recording()) {
    lse =
        tape.Output({kChunks, s.B, s.H, context.chunk()}, StatisticsOf(dtype));
  }
  if (tape.recording() && !tape.inputs().remake) {
    kept = tape.Output(context.shape(), dtype);
    keys = kept.value();
  } else {
    keys = tape.Scratch(context.shape(), dtype);
  }
  GatherKeys(tape, context, group, qkv.value(),
             tape.Scratch(context.shape(), dtype), keys);
  Forward(tape, context, qkv, o, lse, keys);
  int64_t pairs = 0;
  for (int i = 0; i < kChunks; ++i) {
    pairs += s.pairs(context.Number(i) * context.chunk(), context.Keys(i));
  }
  const double flops =
      4.0 * static_cast<double>(pairs) * static_cast<double>(s.B * s.H * s.Dh);
  OpRecord op{.name = "attention",
              .inputs = {qkv},
              .outputs = {o},
              .flops = flops,
              .backward_flops = 2 * flops};
  if (tape.recording()) {
    op.saves = {qkv, o, lse};
    if (kept.defined()) op.saves.push_back(kept);
    op.input = [=](Backward& back) {
      InputGrad(back, context, qkv, o, lse, kept);
    };
  }
  tape.Record(std::move(op));
  return o;
}

}  // namespace delink::ops
