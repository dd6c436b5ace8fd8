#include "layers/modules/dropout.h"

#include "layers/ops/dropout.h"

namespace delink {

Var Dropout::operator()(Var x) { return ops::Dropout(x, rate_, name_hash_); }

}  // namespace delink
