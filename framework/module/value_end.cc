#include "framework/module/value_end.h"

namespace delink {

int64_t ValueSink::grain(const Field&, const LogicalTensor&) const { return 1; }

void ValueSink::AsKept(const Field&, const LogicalTensor&, const Extent&,
                       void*) const {}

bool ValueSink::Copy(ValueSource&, const Field&, const LogicalTensor&,
                     const Extent&, const LogicalTensor&, const Extent&) {
  return false;
}

}  // namespace delink
