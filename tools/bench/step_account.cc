#include "tools/bench/step_account.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"

namespace delink::bench {
namespace {

constexpr char kZeroing[] = "fill_zero";

double StepParts::*PartOf(Op op) {
  switch (op) {
    case Op::kForward:
      return &StepParts::forward;
    case Op::kLoss:
      return &StepParts::head;
    case Op::kBackward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      return &StepParts::backward;
    case Op::kReduce:
    case Op::kGather:
      return &StepParts::reduce;
    case Op::kSquares:
    case Op::kNorm:
      return &StepParts::norm;
    case Op::kUpdate:
      return &StepParts::update;
    default:
      return &StepParts::other;
  }
}

// Field by field.
template <typename T>
T Medians(const std::vector<T>& all,
          std::initializer_list<double T::*> fields) {
  T median;
  for (double T::*const field : fields) {
    std::vector<double> values;
    for (const T& one : all) values.push_back(one.*field);
    median.*field = Summarise(std::move(values)).median;
  }
  return median;
}

class Account {
 public:
  Account(const StepRecord& record, const Machine& machine,
          const MemoryAccount& memory)
      : record_(record),
        machine_(machine),
        store_(*record.store),
        memory_(memory),
        dtype_(store_.options().dtype),
        parts_(record.seconds.size()),
        blocks_(record.seconds.size()) {
    for (const Slab& slab : store_.slabs()) {
      const bool in_blocks = LayerKind(slab.leader) == std::string("blocks");
      (in_blocks ? block_elements_ : other_elements_) +=
          static_cast<double>(slab.elements);
    }
    cells_ = static_cast<double>(store_.layout().cells());
  }

  void AddSpans() {
    for (const Trace::Span& span : record_.trace->spans()) {
      if (span.step < record_.first) continue;
      AddSpan(span);
    }
  }

  // After AddSpans.
  void AddCalls() {
    const std::vector<Trace::Span>& spans = record_.trace->spans();
    size_t at = 0;
    for (const TimedCall& call : record_.calls->calls()) {
      // With one thread, spans and calls are in order of time.
      while (at < spans.size() && spans[at].end < call.begin) ++at;
      if (at == spans.size()) break;
      const Trace::Span& span = spans[at];
      if (call.begin < span.begin || span.step < record_.first) continue;
      AddCall(span, call);
    }
  }

  void Finish(StepMeasure* measure) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      StepParts& p = parts_[i];
      p.other = record_.seconds[i] - p.forward - p.head - p.backward -
                p.reduce - p.norm - p.update - p.zeroing;
    }
    measure->parts = Medians<StepParts>(
        parts_, {&StepParts::forward, &StepParts::head, &StepParts::backward,
                 &StepParts::reduce, &StepParts::norm, &StepParts::update,
                 &StepParts::zeroing, &StepParts::other});
    measure->blocks = Medians<BlockUpkeep>(
        blocks_, {&BlockUpkeep::update, &BlockUpkeep::reduce,
                  &BlockUpkeep::norm, &BlockUpkeep::zeroing});
    for (const Trace::Entry& entry : Entries()) {
      measure->flops += entry.forward_flops + entry.backward_flops;
    }
    FinishKernels(measure);
  }

 private:
  const std::vector<Trace::Entry>& Entries() const {
    DELINK_CHECK_EQ(record_.trace->programs().size(), size_t{1});
    return record_.trace->programs().front();
  }
  const Trace::Entry& EntryOf(const Trace::Span& span) const {
    return At(Entries(), span.index);
  }
  size_t IndexOf(const Trace::Span& span) const {
    const auto index = static_cast<size_t>(span.step - record_.first);
    DELINK_CHECK_LT(index, parts_.size());
    return index;
  }

  const char* LayerKind(int layer) const {
    return layer == 0                     ? "embed"
           : layer == store_.blocks() + 1 ? "head"
                                          : "blocks";
  }
  const char* KindOf(const Instruction& at) const {
    if (at.layer >= 0) return LayerKind(At(store_.visited(), at.layer));
    if (at.slab < 0) return "all";
    return LayerKind(store_.slab(at.slab).leader);
  }

  // The span's length or, on an asynchronous device, the device time from the
  // host's marks in it. Must be called for spans in order of time.
  double SecondsOf(const Trace::Span& span) {
    const std::vector<KernelMark>& marks = record_.calls->marks();
    if (marks.empty()) return Seconds(span.end - span.begin);
    double seconds = 0;
    for (; mark_ < marks.size() && marks[mark_].at <= span.end; ++mark_) {
      if (marks[mark_].at >= span.begin) seconds += marks[mark_].seconds;
    }
    return seconds;
  }

  void AddSpan(const Trace::Span& span) {
    const Instruction& at = EntryOf(span).at;
    const double seconds = SecondsOf(span);
    parts_[IndexOf(span)].*PartOf(at.op) += seconds;
    BlockUpkeep& blocks = blocks_[IndexOf(span)];
    const bool of_blocks = KindOf(at) == std::string("blocks");
    if (at.op == Op::kUpdate) {
      if (of_blocks) blocks.update += seconds;
      Count(span, "adamw", seconds,
            UpdateWork(SlabHere(store_, at.slab), EntryOf(span).bytes));
    } else if (at.op == Op::kSquares) {
      if (of_blocks) blocks.norm += seconds;
      Count(span, "norm", seconds,
            {.read = static_cast<double>(EntryOf(span).bytes)});
    } else if (at.op == Op::kNorm) {
      const double all = block_elements_ + other_elements_;
      blocks.norm += seconds * block_elements_ / all;
      Count(span, "norm", seconds, {.read = SizeOf(DType::kF64) * cells_});
    } else if (of_blocks && (at.op == Op::kReduce || at.op == Op::kGather)) {
      blocks.reduce += seconds;
    }
  }

  void AddCall(const Trace::Span& span, const TimedCall& call) {
    const Instruction& at = EntryOf(span).at;
    const double seconds = call.seconds;
    if (call.work.kernel == kZeroing) {
      parts_[IndexOf(span)].*PartOf(at.op) -= seconds;
      parts_[IndexOf(span)].zeroing += seconds;
      if (KindOf(at) == std::string("blocks")) {
        blocks_[IndexOf(span)].zeroing += seconds;
      }
    }
    Count(span, call.work.kernel, seconds, call.work);
  }

  // An update of `bytes` of a slab's master weights. For its share of the
  // parameters it reads gradients, state and weights, and writes state and
  // weights. It does not read bf16 weights if it rounds them from a whole
  // master.
  Work UpdateWork(int slab, int64_t bytes) const {
    const int64_t elements =
        bytes / SizeOf(store_.dtype(slab, store_.master(slab)));
    const int64_t all_elements = memory_.weights / SizeOf(dtype_);  // padded
    const double part =
        static_cast<double>(elements) / static_cast<double>(all_elements);
    const auto& options = store_.options();
    const bool rounded =
        options.dtype == DType::kBF16 && options.master == MasterForm::kWhole;
    const auto of = [&](int64_t all) {
      return part * static_cast<double>(all);
    };
    return {.read = of(memory_.gradients) + of(memory_.state) +
                    (rounded ? 0 : of(memory_.weights)),
            .written = of(memory_.state) + of(memory_.weights)};
  }

  void Count(const Trace::Span& span, std::string_view kernel, double seconds,
             const Work& work) {
    const char* const layer = KindOf(EntryOf(span).at);
    Kernel& k = kernels_[{layer, std::string(kernel)}];
    k.seconds.resize(record_.seconds.size());
    k.seconds[IndexOf(span)] += seconds;
    k.share.layer = layer;
    k.share.kernel = kernel;
    k.share.calls += 1;
    k.share.work.flops += work.flops;
    k.share.work.read += work.read;
    k.share.work.written += work.written;
  }

  // Divides the work of all steps by their number, since all do the same.
  void FinishKernels(StepMeasure* measure) {
    const auto steps = static_cast<double>(record_.seconds.size());
    const double step = Summarise(record_.seconds).median;
    for (auto& [key, kernel] : kernels_) {
      KernelShare& share = kernel.share;
      share.calls /= steps;
      share.work.flops /= steps;
      share.work.read /= steps;
      share.work.written /= steps;
      share.seconds = Summarise(std::move(kernel.seconds)).median;
      share.share = share.seconds / step;
      share.peak = machine_.Roof(share.work, dtype_) / share.seconds;
      share.memory_bound = machine_.BoundByMemory(share.work, dtype_);
      measure->kernels.push_back(share);
    }
    std::sort(measure->kernels.begin(), measure->kernels.end(),
              [](const KernelShare& a, const KernelShare& b) {
                return a.seconds > b.seconds;
              });
  }

  struct Kernel {
    KernelShare share;
    std::vector<double> seconds;  // by step
  };

  const StepRecord& record_;
  const Machine& machine_;
  const ParamStore& store_;
  const MemoryAccount& memory_;
  const DType dtype_;
  double block_elements_ = 0, other_elements_ = 0;
  double cells_ = 0;  // sums of squares that a norm adds up
  size_t mark_ = 0;
  std::vector<StepParts> parts_;     // by step
  std::vector<BlockUpkeep> blocks_;  // by step
  std::map<std::pair<std::string, std::string>, Kernel> kernels_;
};

}  // namespace

void AccountForTime(const StepRecord& record, const Machine& machine,
                    StepMeasure* measure) {
  Account account(record, machine, measure->memory);
  account.AddSpans();
  account.AddCalls();
  account.Finish(measure);
}

}  // namespace delink::bench
