#include "framework/step/trace.h"

#include <utility>

namespace delink {

int32_t Trace::AddProgram(std::vector<Entry> entries) {
  programs_.push_back(std::move(entries));
  return static_cast<int32_t>(programs_.size()) - 1;
}

void Trace::Add(const Span& span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(span);
}

}  // namespace delink
