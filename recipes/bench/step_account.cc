#include "recipes/bench/step_account.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "framework/base/check.h"

namespace delink::bench {
namespace {

constexpr char kZeroing[] = "fill_zero";

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

double StepParts::*PartOf(Op op) {
  switch (op) {
    case Op::kForward:
      return &StepParts::forward;
    case Op::kLoss:
      return &StepParts::head;
    case Op::kBackward:
      return &StepParts::backward;
    case Op::kReduce:
    case Op::kFetch:
      return &StepParts::reduce;
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
  Account(const StepRecord& record, const Machine& machine, DType dtype)
      : record_(record),
        machine_(machine),
        store_(*record.store),
        dtype_(dtype),
        parts_(record.seconds.size()),
        blocks_(record.seconds.size()) {
    for (const Slab& slab : store_.slabs()) {
      const bool in_blocks = LayerKind(slab.leader) == std::string("blocks");
      (in_blocks ? block_elements_ : other_elements_) +=
          static_cast<double>(slab.elements);
    }
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
    for (const KernelCall& call : record_.calls->calls()) {
      // One thread: spans and calls stand in the order of time.
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
    return Entries()[static_cast<size_t>(span.index)];
  }
  size_t IndexOf(const Trace::Span& span) const {
    const auto index = static_cast<size_t>(span.step - record_.first);
    DELINK_CHECK_LT(index, parts_.size());
    return index;
  }

  const char* LayerKind(int layer) const {
    return layer == 0                     ? "embed"
           : layer == store_.layers() - 1 ? "head"
                                          : "blocks";
  }
  const char* KindOf(const Instruction& at) const {
    if (at.layer >= 0) return LayerKind(at.layer);
    if (at.slab < 0) return "all";
    return LayerKind(store_.slabs()[static_cast<size_t>(at.slab)].leader);
  }

  // Where the device goes its own way, what it took from when the host was
  // there. Spans are asked for in the order of time.
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
      Count(span, "adamw", seconds, UpdateWork(EntryOf(span).bytes));
    } else if (at.op == Op::kNorm) {
      const double all = block_elements_ + other_elements_;
      blocks.norm += seconds * block_elements_ / all;
      Count(span, "norm", seconds, {.read = all * sizeof(float)});
    } else if (of_blocks && (at.op == Op::kReduce || at.op == Op::kFetch)) {
      blocks.reduce += seconds;
    }
  }

  void AddCall(const Trace::Span& span, const KernelCall& call) {
    const Instruction& at = EntryOf(span).at;
    const double seconds = call.seconds;
    if (std::strcmp(call.work.kernel, kZeroing) == 0) {
      parts_[IndexOf(span)].*PartOf(at.op) -= seconds;
      parts_[IndexOf(span)].zeroing += seconds;
      if (KindOf(at) == std::string("blocks")) {
        blocks_[IndexOf(span)].zeroing += seconds;
      }
    }
    Count(span, call.work.kernel, seconds, call.work);
  }

  // AdamW on so many bytes of f32 weights: reads weights, gradients and both
  // moments, writes all but the gradients, and of bf16 the rounded weights too.
  Work UpdateWork(int64_t bytes) const {
    const auto plane = static_cast<double>(bytes);
    const double rounded = dtype_ == DType::kBF16 ? plane / 2 : 0;
    return {.read = 4 * plane, .written = 3 * plane + rounded};
  }

  void Count(const Trace::Span& span, const char* kernel, double seconds,
             const Work& work) {
    const char* const layer = KindOf(EntryOf(span).at);
    Kernel& k = kernels_[{layer, kernel}];
    k.seconds.resize(record_.seconds.size());
    k.seconds[IndexOf(span)] += seconds;
    k.share.layer = layer;
    k.share.kernel = kernel;
    k.share.calls += 1;
    k.share.work.flops += work.flops;
    k.share.work.read += work.read;
    k.share.work.written += work.written;
  }

  // From all steps to one, which all have the same work.
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
  const DType dtype_;
  double block_elements_ = 0, other_elements_ = 0;
  size_t mark_ = 0;
  std::vector<StepParts> parts_;     // by step
  std::vector<BlockUpkeep> blocks_;  // by step
  std::map<std::pair<std::string, std::string>, Kernel> kernels_;
};

}  // namespace

void AccountForTime(const StepRecord& record, const Machine& machine,
                    StepMeasure* measure) {
  Account account(record, machine, record.store->options().dtype);
  account.AddSpans();
  account.AddCalls();
  account.Finish(measure);
}

}  // namespace delink::bench
