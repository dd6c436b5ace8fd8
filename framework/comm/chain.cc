#include "framework/comm/chain.h"

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace delink {
namespace {

class ChainPending final : public Pending {
 public:
  // `now` is the Pending of steps[next - 1], or the one before all steps.
  ChainPending(std::unique_ptr<Pending> now, std::vector<ChainStep> steps,
               size_t next)
      : now_(std::move(now)), steps_(std::move(steps)), next_(next) {}

 private:
  absl::StatusOr<bool> Poll() override {
    while (true) {
      absl::StatusOr<bool> done = now_->Test();
      if (!done.ok() || !*done) return done;
      do {
        if (next_ == steps_.size()) return true;
        now_ = steps_[next_++]();
      } while (now_ == nullptr);
    }
  }

  std::unique_ptr<Pending> now_;
  const std::vector<ChainStep> steps_;
  size_t next_;
};

class AllPending final : public Pending {
 public:
  explicit AllPending(std::vector<std::unique_ptr<Pending>> operations)
      : operations_(std::move(operations)) {}

 private:
  absl::StatusOr<bool> Poll() override {
    bool done = true;
    absl::Status status;
    for (const std::unique_ptr<Pending>& operation : operations_) {
      const absl::StatusOr<bool> one = operation->Test();
      status.Update(one.status());
      if (one.ok() && !*one) done = false;
    }
    if (done && !status.ok()) return status;
    return done;
  }

  const std::vector<std::unique_ptr<Pending>> operations_;
};

}  // namespace

std::unique_ptr<Pending> All(std::vector<std::unique_ptr<Pending>> operations) {
  std::erase(operations, nullptr);
  if (operations.empty()) return nullptr;
  return std::make_unique<AllPending>(std::move(operations));
}

std::unique_ptr<Pending> Chain(std::unique_ptr<Pending> first,
                               std::vector<ChainStep> steps) {
  size_t next = 0;
  while (first == nullptr && next < steps.size()) first = steps[next++]();
  if (first == nullptr || next == steps.size()) return first;
  return std::make_unique<ChainPending>(std::move(first), std::move(steps),
                                        next);
}

}  // namespace delink
