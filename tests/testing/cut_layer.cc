#include "tests/testing/cut_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
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

// `at` of `n` along the tensor axis, or that of experts.
Cut CutOf(const ParamSpec& spec, int at, int n) {
  const Rect whole = WholeOf(spec.shape);
  if (spec.split == Split::kExpert) {
    const Range rows = Piece(whole.rows, whole.rows / spec.shape[0], at, n);
    return {.here = {{.row = rows.begin,
                      .rows = rows.size(),
                      .columns = whole.columns}}};
  }
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
  if (whole.rank() == 3) return {rows / whole[1], whole[1], whole[2]};
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

// Of about the size that keeps activations about 1, or zeros where a model has
// a deviation of 0.
std::vector<double> ValuesOf(const ParamDecl& decl) {
  const Shape& shape = decl.spec.shape;
  const bool vector = shape.rank() < 2;
  if (decl.spec.init == Init::Normal(0)) {
    return std::vector<double>(static_cast<size_t>(shape.elements()));
  }
  const double size =
      vector ? 0.5 : 1 / std::sqrt(static_cast<double>(shape[-1]));
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

// Where in a row its tokens stand that a place along the context axis has:
// chunk `at` of 2 n, and that as far from the end.
std::vector<int32_t> PlacesOf(int64_t T, int at, int n) {
  DELINK_CHECK(n == 1 || T % (2 * n) == 0);
  const int64_t chunk = n == 1 ? T : T / (2 * n);
  std::vector<int32_t> places;
  for (const int number : {at, 2 * n - 1 - at}) {
    if (n == 1 && number > 0) break;
    for (int64_t t = 0; t < chunk; ++t) {
      places.push_back(static_cast<int32_t>(number * chunk + t));
    }
  }
  return places;
}

// Values of [B, T, width] whose tokens are these.
template <typename T>
std::vector<T> TokensOf(const std::vector<T>& all,
                        const std::vector<int64_t>& tokens, int64_t width) {
  std::vector<T> some;
  for (const int64_t token : all.empty() ? std::vector<int64_t>() : tokens) {
    some.insert(some.end(), all.begin() + token * width,
                all.begin() + (token + 1) * width);
  }
  return some;
}

class CutRank {
 public:
  // Ranks are those of `tensor` for each of `context`; null: alone there.
  CutRank(const CutCase& c, const CutOptions& options, Communicator* tensor,
          Communicator* context, Communicator* expert)
      : c_(c),
        options_(options),
        rank_(tensor != nullptr ? tensor->rank() : 0),
        device_(NewCpuDevice()),
        key_(KeyFromSeed(7)) {
    if (tensor != nullptr) tensor_ = std::make_unique<NotedGroup>(*tensor);
    if (context != nullptr) context_ = std::make_unique<NotedGroup>(*context);
    if (expert != nullptr) {
      expert_ = std::make_unique<NotedGroup>(*expert);
      expert_->set_nodes(options.nodes);
    }
    layer_ = c.build(Scope(registry_, options.dtype));
    for (const ParamDecl& decl : registry_.decls) TakeParam(decl);
    for (int64_t b = 0; b < c.B; ++b) samples_.push_back(100 + 3 * b);
    TakeTokens();
    MakeInput();
    Bind(false);
    visit_ = std::make_unique<VisitRunner>(RunnerOptions(options.memory));
    SizeOutput();
  }

  absl::Status Run() {
    for (int time = 0; time < options_.times; ++time) {
      record_ = {.lost = record_.lost};
      FillInput(time);
      Bind(time > 0);
      visit_->Forward(Phase::kForward, Inputs(), x_.tensor(), y_.tensor());
      ExpectExchanges(Phase::kForward);
      const std::vector<double> first = y_.values();
      record_ = {.lost = record_.lost};
      visit_->Forward(Phase::kRecord, Inputs(), x_.tensor(), y_.tensor());
      ExpectExchanges(Phase::kRecord);
      EXPECT_EQ(first, y_.values());
      GoBack();
      if (time == 0) Finish();
    }
    for (const NotedGroup* group :
         {tensor_.get(), context_.get(), expert_.get()}) {
      if (group != nullptr && !group->status().ok()) return group->status();
    }
    return absl::OkStatus();
  }

  const LossRecord& loss() const { return record_; }
  // This rank's part to what all have.
  void AddTo(CutResult& result, const CutRank& first_of_tensor) const {
    result.loss.loss_sum += record_.loss_sum;
    result.loss.tokens += record_.tokens;
    result.loss.z_sum += record_.z_sum;
    result.loss.lost += record_.lost;
    result.ranks.push_back({.tokens = own_, .lost = record_.lost});
    result.sums.resize(std::max(result.sums.size(), sums_.size()));
    for (size_t i = 0; i < sums_.size(); ++i) result.sums[i] += sums_[i];
    Place(y_, result.y);
    Place(dx_, result.dx);
    for (size_t i = 0; i < held_.size(); ++i) {
      AddGradient(held_[i], first_of_tensor.held_[i], result);
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

  // Tokens of several ranks are the same bits on all of them.
  void Place(const Array& array, std::vector<double>& all) const {
    const std::vector<double> values = array.values();
    if (values.empty()) return;
    const auto width = static_cast<int64_t>(values.size() / own_.size());
    all.resize(static_cast<size_t>(c_.B * c_.T * width),
               std::numeric_limits<double>::quiet_NaN());
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      double& value = At(all, At(own_, i / width) * width + i % width);
      EXPECT_TRUE(std::isnan(value) || value == At(values, i))
          << value << " and " << At(values, i) << " on rank " << rank_;
      value = At(values, i);
    }
  }
  void AddGradient(const Held& held, const Held& first,
                   CutResult& result) const {
    const ParamSpec& spec = held.decl->spec;
    std::vector<double>& sum = result.gradients[held.decl->name];
    sum.resize(static_cast<size_t>(spec.shape.elements()));
    const bool alike = spec.split == Split::kNone && !spec.by_head &&
                       !options_.sequence && rank_ > 0;
    const std::vector<double> values = held.grad.values();
    // Or nothing: a bias that the first one alone adds.
    if (alike && held.given) {
      EXPECT_EQ(values, first.grad.values()) << held.decl->name;
    }
    // Every group of `expert` gives the gradients of all tokens.
    const bool again = spec.split == Split::kExpert && options_.same_tokens &&
                       rank_ >= options_.expert;
    if (alike || again) return;
    ForEach(spec.shape, held.rects,
            [&](int64_t i, int64_t w) { At(sum, w) += At(values, i); });
  }

  // Which of all tokens are here, and where: first those of this place along
  // the context axis, of them those whose rows of activations are this rank's.
  void TakeTokens() {
    const int at = context_ != nullptr ? context_->rank() : 0;
    places_ = PlacesOf(c_.T, at, options_.context);
    for (int64_t b = 0; b < c_.B; ++b) {
      for (const int32_t t : places_) tokens_.push_back(b * c_.T + t);
    }
    own_ = tokens_;
    if (options_.sequence) {
      const auto rows =
          static_cast<std::ptrdiff_t>(tokens_.size()) / options_.ranks;
      DELINK_CHECK_EQ(rows * options_.ranks,
                      static_cast<std::ptrdiff_t>(tokens_.size()));
      own_ = {tokens_.begin() + rank_ * rows,
              tokens_.begin() + (rank_ + 1) * rows};
    }
    targets_ = TokensOf(c_.targets, tokens_, 1);
    positions_ = TokensOf(c_.positions, tokens_, 1);
    if (positions_.empty() && (options_.sequence || context_ != nullptr)) {
      for (const int64_t token : tokens_) {
        positions_.push_back(static_cast<int32_t>(token % c_.T));
      }
    }
  }

  void TakeParam(const ParamDecl& decl) {
    if (decl.link >= 0) return;
    const bool of_experts = decl.spec.split == Split::kExpert;
    Cut cut = of_experts
                  ? CutOf(decl.spec, expert_ == nullptr ? 0 : expert_->rank(),
                          options_.expert)
                  : CutOf(decl.spec, rank_, options_.ranks);
    Hold(decl, std::move(cut.here), decl.param.get());
    if (cut.rest.empty()) return;
    decl.param->BindRest(std::make_unique<Param>());
    Hold(decl, std::move(cut.rest), decl.param->rest());
  }
  void Hold(const ParamDecl& decl, std::vector<Rect> rects, Param* param) {
    const Shape shape = ShapeOf(decl.spec.shape, rects);
    const DType wide = StatisticsOf(options_.dtype);
    const bool exact = decl.spec.exact;
    const DType gradients =
        options_.bf16_gradients && !exact ? DType::kBF16 : wide;
    const auto index = static_cast<int>(&decl - registry_.decls.data());
    const bool linked = std::any_of(
        registry_.decls.begin(), registry_.decls.end(),
        [&](const ParamDecl& other) { return other.link == index; });
    Held held{.decl = &decl,
              .rects = std::move(rects),
              .param = param,
              .weight = Array(exact ? wide : options_.dtype, shape),
              .grad = Array(gradients, shape, linked ? 0.0 : 1.0),
              .linked = linked};
    const auto given = c_.weights.find(decl.name);
    const std::vector<double> values =
        given != c_.weights.end() ? given->second : ValuesOf(decl);
    ForEach(decl.spec.shape, held.rects,
            [&](int64_t i, int64_t w) { held.weight.Set(i, At(values, w)); });
    held_.push_back(std::move(held));
  }
  void MakeInput() {
    const auto T = static_cast<int64_t>(places_.size());
    if (!c_.tokens.empty()) {
      const std::vector<int32_t> ids = TokensOf(c_.tokens, tokens_, 1);
      x_ = Array(DType::kI32, {c_.B, T}, {ids.begin(), ids.end()});
      return;
    }
    const Shape shape = options_.sequence
                            ? Shape{1, static_cast<int64_t>(own_.size()), c_.D}
                            : Shape{c_.B, T, c_.D};
    x_ = dx_ = Array(options_.dtype, shape);
    FillInput(0);
  }
  void FillInput(int time) {
    if (!c_.tokens.empty()) return;
    const int64_t count = c_.B * c_.T * c_.D;
    const auto first = c_.x.begin() + (c_.x.empty() ? 0 : time * count);
    const std::vector<double> all =
        c_.x.empty() ? Numbers("x", count)
                     : std::vector<double>(first, first + count);
    x_ = Array(options_.dtype, x_.shape(), TokensOf(all, own_, c_.D));
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
            .groups = {.tensor = tensor_.get(),
                       .context = context_.get(),
                       .expert = expert_.get(),
                       .sequence = options_.sequence,
                       .same_tokens = options_.same_tokens}};
  }
  // Asks a first visit, over memory of its own, for the output's shape.
  void SizeOutput() {
    if (c_.loss) return;
    VisitRunner probe(RunnerOptions(MemoryMode::kHeap));
    probe.Forward(Phase::kForward, Inputs(), x_.tensor(), Tensor());
    const Shape shape = probe.output().shape();
    // Ranks with the same tokens would add the same.
    if (options_.training && (options_.sequence || rank_ == 0)) {
      sums_.resize(static_cast<size_t>(probe.tape().sums_asked()));
    }
    y_ = Array(options_.dtype, shape);
    TakeNotes();
    record_ = {};
    const std::vector<double> all = Numbers("dy", c_.B * c_.T * shape[2]);
    dy_ = Array(options_.dtype, shape, TokensOf(all, own_, shape[2]));
  }
  VisitInputs Inputs() {
    const auto given = [](const std::vector<int32_t>& values) {
      return values.empty() ? nullptr : values.data();
    };
    return {.training = options_.training,
            .remake = options_.remake,
            .step_key = &key_,
            .samples = samples_.data(),
            .targets = given(targets_),
            .all_counted = options_.all_counted,
            .loss = &record_,
            .sums = sums_.empty() ? nullptr : sums_.data(),
            .positions = given(positions_),
            .documents = given(c_.documents),
            .places = context_ != nullptr ? places_.data() : nullptr,
            .sequences = c_.B,
            .expert_room = options_.expert_room,
            .expert_overlap = options_.expert_overlap};
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
    const std::vector<Exchange> notes = TakeNotes();
    if (options_.memory != MemoryMode::kPlanned) return;
    EXPECT_EQ(notes, At(visit_->exchanges(), phase));
  }
  // As VisitRunner::exchanges has them.
  std::vector<Exchange> TakeNotes() {
    std::vector<Exchange> all;
    for (NotedGroup* group : {tensor_.get(), expert_.get()}) {
      if (group == nullptr) continue;
      for (const Exchange& exchange : group->TakeNotes()) {
        all.push_back(exchange);
      }
    }
    return all;
  }

  const CutCase& c_;
  CutOptions options_;
  int rank_;  // along the tensor axis
  std::unique_ptr<Device> device_;
  std::unique_ptr<NotedGroup> tensor_, context_, expert_;
  RngKey key_;
  ParamRegistry registry_;
  VisitRunner::Layer layer_;
  std::vector<Held> held_;
  std::vector<int64_t> samples_;
  std::vector<int32_t> places_;        // [T] of this context place
  std::vector<int64_t> tokens_, own_;  // by row: number in [B, T] of all
  std::vector<int32_t> targets_, positions_;
  LossRecord record_;
  std::vector<double> sums_;
  Array x_, dx_, y_, dy_;
  std::unique_ptr<VisitRunner> visit_;
};

using Ranks = std::vector<std::unique_ptr<CutRank>>;

absl::Status RunOn(const CutCase& c, const CutOptions& options,
                   Communicator& comm, Ranks& ranks) {
  const int place = comm.rank() / options.ranks;
  DELINK_ASSIGN_OR_RETURN(const auto tensor, comm.Split(place, 0));
  DELINK_ASSIGN_OR_RETURN(const auto context,
                          comm.Split(comm.rank() % options.ranks, 0));
  DELINK_ASSIGN_OR_RETURN(const auto expert,
                          comm.Split(comm.rank() / options.expert, 0));
  auto rank = std::make_unique<CutRank>(
      c, options, options.ranks > 1 ? tensor.get() : nullptr,
      options.context > 1 ? context.get() : nullptr,
      options.expert > 1 ? expert.get() : nullptr);
  const absl::Status status = rank->Run();
  At(ranks, comm.rank()) = std::move(rank);
  return status;
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
  const int count = options.ranks * options.context;
  Ranks ranks(static_cast<size_t>(count));
  const absl::Status status = RunRanks(count, [&](Communicator& comm) {
    return RunOn(c, options, comm, ranks);
  });
  EXPECT_EQ(status, absl::OkStatus());
  CutResult result;
  if (!status.ok()) return result;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto tensor = static_cast<size_t>(options.ranks);
    ranks[i]->AddTo(result, *ranks[i / tensor * tensor]);
  }
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
