#include "layers/ops/rows.h"

#include <cstdint>
#include <utility>

#include "framework/base/check.h"
#include "layers/ops/kernels_of.h"

namespace delink::ops {

void GatherTensor(Device& device, Stream& stream, VisitGroup& group,
                  const Tensor& own, const Tensor& all) {
  DELINK_CHECK_EQ(all.elements(), group.size() * own.elements());
  device.Copy(stream,
              static_cast<char*>(all.data()) + group.rank() * own.bytes(),
              own.data(), own.bytes());
  group.AllGather(all.data(), own.elements(), own.dtype());
}

void ScatterTensor(VisitGroup& group, const Tensor& all, const Tensor& own) {
  DELINK_CHECK_EQ(all.elements(), group.size() * own.elements());
  group.ReduceScatter(all.data(), own.data(), own.elements(), own.dtype());
}

namespace {

// In place. `visit` is a Tape or a Backward. bf16 sums are rounded once.
template <typename Visit>
void SumOverRanks(Visit& visit, VisitGroup& group, const Tensor& x) {
  Device& device = visit.device();
  Stream& stream = visit.stream();
  const int64_t count = x.elements();
  if (x.dtype() != DType::kBF16) {
    return group.AllReduce(x.data(), count, x.dtype(),
                           VisitGroup::Reduction::kSum);
  }
  const int64_t piece = (count + group.size() - 1) / group.size();
  const Tensor own = visit.Scratch({piece}, x.dtype());
  Tensor all(x.data(), x.dtype(), {count});
  if (group.size() * piece > count) {
    all = visit.Scratch({group.size() * piece}, x.dtype());
    device.FillZero(stream, all.data(), all.bytes());
    device.Copy(stream, all.data(), x.data(), x.bytes());
  }
  ScatterTensor(group, all, own);
  GatherTensor(device, stream, group, own, all);
  if (all.data() != x.data()) {
    device.Copy(stream, x.data(), all.data(), x.bytes());
  }
}

// The shape of all ranks' rows together.
Shape AllRows(const Tape& tape, int64_t rows, int64_t width) {
  const int64_t B = tape.inputs().sequences;
  DELINK_CHECK(B > 0 && rows % B == 0)
      << rows << " rows, " << B << " sequences";
  return {B, rows / B, width};
}

}  // namespace

Var HandOn(Var x, VisitGroup& group) {
  Tape& tape = x.tape();
  const Var y = tape.Alias(x);
  tape.Record({.name = "gather_rows",
               .inputs = {x},
               .outputs = {y},
               .by_token = true,
               .input = [=, &group](Backward& back) {
                 if (!x.needs_grad()) return;
                 SumOverRanks(back, group, back.ReuseGrad(y, x));
               }});
  return y;
}

Var SumOver(Var y, VisitGroup& group) {
  Tape& tape = y.tape();
  const Var sum = tape.Overwrite(y);
  SumOverRanks(tape, group, sum.value());
  tape.Record({.name = "scatter_rows",
               .inputs = {y},
               .outputs = {sum},
               .by_token = true,
               .input = [=](Backward& back) { back.PassGrad(sum, y); }});
  return sum;
}

Var GatherPieces(Var x, VisitGroup& group, const Shape& all) {
  Tape& tape = x.tape();
  const Var y = tape.Output(all, x.dtype());
  GatherTensor(tape.device(), tape.stream(), group, x.value(), y.value());
  OpRecord op{.name = "gather_rows",
              .inputs = {x},
              .outputs = {y},
              .by_token = true,
              .own_rows = true};
  op.input = [=, &group](Backward& back) {
    if (x.needs_grad()) ScatterTensor(group, back.grad(y), back.NewGrad(x));
  };
  if (tape.inputs().remake) {
    op.saves = {x};
    op.remake = [=, &group](Backward& back, const Tensor& again) {
      GatherTensor(back.device(), back.stream(), group, x.value(), again);
    };
  }
  tape.Record(std::move(op));
  return y;
}

Var ScatterPieces(Var y, VisitGroup& group, const Shape& own) {
  Tape& tape = y.tape();
  const Var sum = tape.Output(own, y.dtype());
  ScatterTensor(group, y.value(), sum.value());
  tape.Record({.name = "scatter_rows",
               .inputs = {y},
               .outputs = {sum},
               .by_token = true,
               .input = [=, &group](Backward& back) {
                 if (!y.needs_grad()) return;
                 GatherTensor(back.device(), back.stream(), group,
                              back.grad(sum), back.NewGrad(y));
               }});
  return sum;
}

Var GatherRows(Var x) {
  const VisitGroups& groups = x.tape().groups();
  if (groups.tensor == nullptr) return x;
  if (!groups.sequence) return HandOn(x, *groups.tensor);
  DELINK_CHECK(x.shape().rank() == 3 && x.dim(0) == 1)
      << x.shape() << " are not a rank's own rows";
  return GatherPieces(
      x, *groups.tensor,
      AllRows(x.tape(), groups.tensor->size() * x.dim(1), x.dim(2)));
}

Var ScatterRows(Var y) {
  const VisitGroups& groups = y.tape().groups();
  VisitGroup* const group = groups.tensor;
  if (group == nullptr) return y;
  if (!groups.sequence) return SumOver(y, *group);
  const int64_t rows = RowsOf(y.shape());
  DELINK_CHECK_EQ(rows % group->size(), 0) << rows << " rows";
  return ScatterPieces(y, *group, {1, rows / group->size(), y.dim(-1)});
}

}  // namespace delink::ops
