// Parameters by what happens to them along the tensor axis: what a test of
// copies, norms or moments looks at one by one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/module/layout.h"

namespace delink::testing {

enum class Class : uint8_t {
  kReplicated,
  kByHead,      // replicated too, of heads that are a rank's own
  kByColumns,   // of what a product gives
  kByRows,      // of what it takes
  kByTokens,    // tables
  kSharedRows,  // of heads that several ranks have, not all
};
inline constexpr Class kClasses[] = {Class::kReplicated, Class::kByHead,
                                     Class::kByColumns,  Class::kByRows,
                                     Class::kByTokens,   Class::kSharedRows};

// Of params[param] of a local slab of the layout.
Class ClassOf(const Layout& layout, const LocalSlab& local, size_t param);

}  // namespace delink::testing
