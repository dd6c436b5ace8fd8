#include "tests/testing/cut_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/at.h"
#include "framework/comm/thread_communicator.h"
#include "framework/module/rect.h"
#include "framework/tensor/bfloat16.h"
#include "tests/testing/gradcheck.h"
#include "tests/testing/numbers.h"

namespace delink::testing {
namespace {

// Numbers of a type that is known when the program runs.
class Array {
 public:
  Array() = default;
  Array(DType dtype, const Shape& shape, double value = 0)
      : dtype_(dtype),
        shape_(shape),
        bytes_(std::max<int64_t>(1, Elements() * SizeOf(dtype))) {
    for (int64_t i = 0; i < Elements(); ++i) Set(i, value);
  }
  Array(DType dtype, const Shape& shape, const std::vector<double>& values)
      : Array(dtype, shape) {
    for (int64_t i = 0; i < Elements(); ++i) Set(i, At(values, i));
  }

  Tensor tensor() {
    if (bytes_.empty()) return {};
    return {bytes_.data(), dtype_, shape_};
  }
  const Shape& shape() const { return shape_; }
  std::vector<double> values() const {
    std::vector<double> result;
    for (int64_t i = 0; i < Elements(); ++i) result.push_back(Get(i));
    return result;
  }
  void Set(int64_t i, double value) {
    if (dtype_ == DType::kF64) Number<double>(i) = value;
    if (dtype_ == DType::kF32) Number<float>(i) = static_cast<float>(value);
    if (dtype_ == DType::kBF16) Number<BFloat16>(i) = BFloat16(value);
    if (dtype_ == DType::kI32) Number<int32_t>(i) = static_cast<int32_t>(value);
  }

 private:
  int64_t Elements() const { return shape_.elements(); }
  template <typename T>
  T& Number(int64_t i) {
    return reinterpret_cast<T*>(bytes_.data())[i];
  }
  double Get(int64_t i) const {
    auto* const self = const_cast<Array*>(this);
    if (dtype_ == DType::kF64) return self->Number<double>(i);
    if (dtype_ == DType::kF32) return self->Number<float>(i);
    return self->Number<BFloat16>(i);
  }

  DType dtype_ = DType::kF64;
  Shape shape_ = {0};
  std::vector<char> bytes_;
};

// What one rank has of a parameter, beside each other in memory, and what lies
// elsewhere.
struct Cut {
  std::vector<Rect> here, rest;
};

// Piece `at` of `n` of `count` that are not taken apart within a unit.
Range Piece(int64_t count, int64_t unit, int at, int n) {
  const int64_t units = count / unit;
  return {units * at / n * unit, units * (at + 1) / n * unit};
}

Cut CutOf(const ParamSpec& spec, int at, int n) {
  const Rect whole = WholeOf(spec.shape);
  if (n == 1 || spec.split == Split::kNone) return {.here = {whole}};
  if (spec.split == Split::kIn) {
    const Range columns = Piece(whole.columns, spec.unit, at, n);
    return {.here = {{.rows = whole.rows,
                      .column = columns.begin,
                      .columns = columns.size()}}};
  }
  std::vector<int64_t> stacked = spec.stacked;
  if (stacked.empty()) stacked = {whole.rows};
  Cut cut;
  int64_t first = 0;
  for (const int64_t count : stacked) {
    const bool shared = spec.unit > 1 && count / spec.unit < n;
    const int64_t number = count / spec.unit * at / n;
    const Range rows = shared
                           ? Range{number * spec.unit, (number + 1) * spec.unit}
                           : Piece(count, spec.unit, at, n);
    (shared ? cut.rest : cut.here)
        .push_back({.row = first + rows.begin,
                    .rows = rows.size(),
                    .columns = whole.columns});
    first += count;
  }
  return cut;
}

Shape ShapeOf(const Shape& whole, const std::vector<Rect>& rects) {
  int64_t rows = 0;
  for (const Rect& rect : rects) rows += rect.rows;
  if (whole.rank() < 2) return {rows};
  return {rows, rects[0].columns};
}

// Calls visit(i, w) for element i of the rectangles, w of the whole tensor.
template <typename Visit>
void ForEach(const Shape& whole, const std::vector<Rect>& rects, Visit visit) {
  int64_t i = 0;
  for (const Rect& rect : rects) {
    for (int64_t row = rect.row; row < rect.row + rect.rows; ++row) {
      for (int64_t c = rect.column; c < rect.column + rect.columns; ++c) {
        visit(i++, row * WholeOf(whole).columns + c);
      }
    }
  }
}

// Of about the size that keeps activations about 1.
std::vector<double> ValuesOf(const ParamDecl& decl) {
  const Shape& shape = decl.spec.shape;
  const bool vector = shape.rank() < 2;
  const double size =
      vector ? 0.5 : 1 / std::sqrt(static_cast<double>(shape[1]));
  const bool ones = decl.spec.init.kind == Init::Kind::kOnes;
  std::vector<double> values;
  for (const BFloat16 v :
       Normals<BFloat16>(decl.name, shape.elements(), size)) {
    values.push_back(float{BFloat16(v + (ones ? 1.0F : 0.0F))});
  }
  return values;
}

std::vector<double> Numbers(const char* name, int64_t count) {
  const auto values = Normals<BFloat16>(name, count);
  return {values.begin(), values.end()};
}

// Rows of one rank among those of all.
Range OwnRows(const CutCase& c, const CutOptions& options, int rank) {
  const int64_t rows = c.B * c.T;
  if (!options.sequence) return {0, rows};
  DELINK_CHECK_EQ(rows % options.ranks, 0);
  return {rows * rank / options.ranks, rows * (rank + 1) / options.ranks};
}

class CutRank {
 public:
  // Null: it is alone.
  CutRank(const CutCase& c, const CutOptions& options, Communicator* comm)
      : c_(c),
        options_(options),
        rank_(comm != nullptr ? comm->rank() : 0),
        device_(NewCpuDevice()),
        key_(KeyFromSeed(7)) {
    if (comm != nullptr) group_ = std::make_unique<NotedGroup>(*comm);
    layer_ = c.build(Scope(registry_, options.dtype));
    for (const ParamDecl& decl : registry_.decls) TakeParam(decl);
    for (int64_t b = 0; b < c.B; ++b) samples_.push_back(100 + 3 * b);
    positions_ = c.positions;
    if (positions_.empty() && options.sequence) {
      for (int64_t i = 0; i < c.B * c.T; ++i) {
        positions_.push_back(static_cast<int32_t>(i % c.T));
      }
    }
    MakeInput();
    Bind(false);
    visit_ = std::make_unique<VisitRunner>(RunnerOptions(options.memory));
    SizeOutput();
  }

  absl::Status Run() {
    for (int time = 0; time < options_.times; ++time) {
      record_ = {};
      Bind(time > 0);
      visit_->Forward(Phase::kForward, Inputs(), x_.tensor(), y_.tensor());
      ExpectExchanges(Phase::kForward);
      const std::vector<double> first = y_.values();
      record_ = {};
      visit_->Forward(Phase::kRecord, Inputs(), x_.tensor(), y_.tensor());
      ExpectExchanges(Phase::kRecord);
      EXPECT_EQ(first, y_.values());
      GoBack();
      if (time == 0) Finish();
    }
    return group_ != nullptr ? group_->status() : absl::OkStatus();
  }

  const LossRecord& loss() const { return record_; }
  std::vector<double> y() const { return y_.values(); }
  std::vector<double> dx() const { return dx_.values(); }

  // Adds this rank's part of the gradients of parameters.
  void AddGradients(CutResult& result) const {
    for (const Held& held : held_) {
      const ParamSpec& spec = held.decl->spec;
      std::vector<double>& sum = result.gradients[held.decl->name];
      sum.resize(static_cast<size_t>(spec.shape.elements()));
      const bool alike = spec.split == Split::kNone && !spec.by_head &&
                         !options_.sequence && rank_ > 0;
      const std::vector<double> values = held.grad.values();
      ForEach(spec.shape, held.rects, [&](int64_t i, int64_t w) {
        if (!alike) At(sum, w) += At(values, i);
        // Else it is that of rank 0, or nothing (a bias that it alone adds).
        if (alike && held.given) {
          EXPECT_EQ(At(sum, w), At(values, i)) << held.decl->name;
        }
      });
    }
  }

 private:
  struct Held {
    const ParamDecl* decl;
    std::vector<Rect> rects;
    Param* param;
    Array weight, grad;
    bool linked;         // two parameters of the visit have this gradient
    bool given = false;  // a gradient
  };

  void TakeParam(const ParamDecl& decl) {
    if (decl.link >= 0) return;
    Cut cut = CutOf(decl.spec, rank_, options_.ranks);
    Hold(decl, std::move(cut.here), decl.param.get());
    if (cut.rest.empty()) return;
    decl.param->BindRest(std::make_unique<Param>());
    Hold(decl, std::move(cut.rest), decl.param->rest());
  }
  void Hold(const ParamDecl& decl, std::vector<Rect> rects, Param* param) {
    const Shape shape = ShapeOf(decl.spec.shape, rects);
    const DType gradients =
        options_.bf16_gradients ? DType::kBF16 : StatisticsOf(options_.dtype);
    const auto index = static_cast<int>(&decl - registry_.decls.data());
    const bool linked = std::any_of(
        registry_.decls.begin(), registry_.decls.end(),
        [&](const ParamDecl& other) { return other.link == index; });
    Held held{.decl = &decl,
              .rects = std::move(rects),
              .param = param,
              .weight = Array(options_.dtype, shape),
              .grad = Array(gradients, shape, linked ? 0.0 : 1.0),
              .linked = linked};
    const std::vector<double> values = ValuesOf(decl);
    ForEach(decl.spec.shape, held.rects,
            [&](int64_t i, int64_t w) { held.weight.Set(i, At(values, w)); });
    held_.push_back(std::move(held));
  }
  void MakeInput() {
    const Range rows = OwnRows(c_, options_, rank_);
    if (!c_.tokens.empty()) {
      x_ = Array(DType::kI32, {c_.B, c_.T},
                 std::vector<double>(c_.tokens.begin(), c_.tokens.end()));
      return;
    }
    const std::vector<double> all = Numbers("x", c_.B * c_.T * c_.D);
    const Shape shape = options_.sequence ? Shape{1, rows.size(), c_.D}
                                          : Shape{c_.B, c_.T, c_.D};
    x_ =
        Array(options_.dtype, shape,
              {all.begin() + rows.begin * c_.D, all.begin() + rows.end * c_.D});
    dx_ = Array(options_.dtype, shape);
  }
  VisitRunner::Options RunnerOptions(MemoryMode memory) {
    return {.device = device_.get(),
            .memory = memory,
            .layer = layer_,
            .x = x_.shape(),
            .x_dtype = c_.tokens.empty() ? options_.dtype : DType::kI32,
            .x_needs_grad = c_.tokens.empty(),
            .loss = c_.loss,
            .bind = [this] { Bind(false); },
            .inputs = Inputs(),
            .groups = {.tensor = group_.get(), .sequence = options_.sequence}};
  }
  // Asks a first visit, over memory of its own, for the output's shape.
  void SizeOutput() {
    if (c_.loss) return;
    VisitRunner probe(RunnerOptions(MemoryMode::kHeap));
    probe.Forward(Phase::kForward, Inputs(), x_.tensor(), Tensor());
    const Shape shape = probe.output().shape();
    y_ = Array(options_.dtype, shape);
    if (group_ != nullptr) group_->TakeNotes();
    const std::vector<double> all =
        Numbers("dy", c_.B * c_.T * shape[shape.rank() - 1]);
    const int64_t first = OwnRows(c_, options_, rank_).begin * shape[2];
    dy_ = Array(options_.dtype, shape,
                {all.begin() + first, all.begin() + first + shape.elements()});
  }
  VisitInputs Inputs() {
    const auto given = [](const std::vector<int32_t>& values) {
      return values.empty() ? nullptr : values.data();
    };
    return {.training = options_.training,
            .remake = options_.remake,
            .step_key = &key_,
            .samples = samples_.data(),
            .targets = given(c_.targets),
            .loss = &record_,
            .positions = given(positions_),
            .documents = given(c_.documents),
            .sequences = c_.B};
  }
  void Bind(bool written) {
    for (Held& held : held_) {
      held.param->Bind(held.weight.tensor(), held.grad.tensor(),
                       written || held.linked);
    }
    for (const ParamDecl& decl : registry_.decls) {
      if (decl.link < 0) continue;
      const Param& to = *At(registry_.decls, decl.link).param;
      decl.param->Bind(to.weight(), to.grad(), true);
    }
  }

  void GoBack() {
    Array dy = dy_;  // backward may overwrite it
    if (!options_.halves) {
      visit_->Backward(dy.tensor(), dx_.tensor());
      return ExpectExchanges(Phase::kBackward);
    }
    visit_->BackwardInput(dy.tensor(), dx_.tensor());
    ExpectExchanges(Phase::kBackwardInput);
    // By the second half this is another visit's.
    dy = Array(options_.dtype, dy_.shape(),
               std::numeric_limits<double>::quiet_NaN());
    visit_->BackwardWeight();
    ExpectExchanges(Phase::kBackwardWeight);
  }
  // As a Binder does after the first backward.
  void Finish() {
    for (Held& held : held_) {
      held.given = held.param->written();
      if (held.given) continue;
      held.grad = Array(held.param->grad().dtype(), held.grad.shape());
    }
  }
  void ExpectExchanges(Phase phase) {
    if (group_ == nullptr) return;
    const std::vector<Exchange> notes = group_->TakeNotes();
    if (options_.memory != MemoryMode::kPlanned) return;
    EXPECT_EQ(notes, At(visit_->exchanges(), phase));
  }

  const CutCase& c_;
  CutOptions options_;
  int rank_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<NotedGroup> group_;
  RngKey key_;
  ParamRegistry registry_;
  VisitRunner::Layer layer_;
  std::vector<Held> held_;
  std::vector<int64_t> samples_;
  std::vector<int32_t> positions_;
  LossRecord record_;
  Array x_, dx_, y_, dy_;
  std::unique_ptr<VisitRunner> visit_;
};

// Of all ranks: one after the other, or the same.
std::vector<double> Joined(const std::vector<std::vector<double>>& parts,
                           bool sequence) {
  std::vector<double> all = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    if (sequence) {
      all.insert(all.end(), parts[i].begin(), parts[i].end());
    } else {
      EXPECT_EQ(parts[i], all) << "rank " << i;
    }
  }
  return all;
}

}  // namespace

std::function<VisitRunner::Layer(const Scope&)> BlocksOf(
    const ModelRunner::Build& build) {
  return [build](const Scope& s) {
    const std::shared_ptr<Sequential> model = build(s);
    return [model](Var x) {
      for (int i = 0; i < model->blocks(); ++i) x = model->layer(i + 1)(x);
      return x;
    };
  };
}

std::function<VisitRunner::Layer(const Scope&)> LossOf(
    const ModelRunner::Build& build) {
  return [build](const Scope& s) {
    const std::shared_ptr<Sequential> model = build(s);
    return [model](Var x) {
      for (int i = 0; i <= model->blocks(); ++i) x = model->layer(i)(x);
      model->epilogue().Loss(x);
      return Var();
    };
  };
}

CutResult RunCut(const CutCase& c, const CutOptions& options) {
  std::vector<std::unique_ptr<CutRank>> ranks(
      static_cast<size_t>(options.ranks));
  if (options.ranks == 1) {
    ranks[0] = std::make_unique<CutRank>(c, options, nullptr);
    EXPECT_EQ(ranks[0]->Run(), absl::OkStatus());
  } else {
    EXPECT_EQ(RunRanks(options.ranks,
                       [&](Communicator& comm) {
                         auto rank =
                             std::make_unique<CutRank>(c, options, &comm);
                         const absl::Status status = rank->Run();
                         At(ranks, comm.rank()) = std::move(rank);
                         return status;
                       }),
              absl::OkStatus());
  }
  CutResult result;
  std::vector<std::vector<double>> y, dx;
  for (const std::unique_ptr<CutRank>& rank : ranks) {
    if (rank == nullptr) return result;
    y.push_back(rank->y());
    dx.push_back(rank->dx());
    rank->AddGradients(result);
    result.loss.loss_sum += rank->loss().loss_sum;
    result.loss.tokens += rank->loss().tokens;
    result.loss.z_sum += rank->loss().z_sum;
  }
  result.y = Joined(y, options.sequence);
  result.dx = Joined(dx, options.sequence);
  return result;
}

void ExpectSame(const CutResult& cut, const CutResult& whole,
                double tolerance) {
  EXPECT_EQ(cut.loss.tokens, whole.loss.tokens);
  EXPECT_NEAR(cut.loss.loss_sum, whole.loss.loss_sum,
              tolerance * std::abs(whole.loss.loss_sum));
  EXPECT_NEAR(cut.loss.z_sum, whole.loss.z_sum,
              tolerance * std::abs(whole.loss.z_sum));
  EXPECT_LE(NormError(cut.y, whole.y), tolerance) << "output";
  EXPECT_LE(NormError(cut.dx, whole.dx), tolerance) << "gradient of the input";
  ASSERT_EQ(cut.gradients.size(), whole.gradients.size());
  for (const auto& [name, gradient] : whole.gradients) {
    EXPECT_LE(NormError(cut.gradients.at(name), gradient), tolerance) << name;
  }
}

}  // namespace delink::testing
