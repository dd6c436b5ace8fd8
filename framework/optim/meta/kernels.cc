// On meta nothing is computed: its addresses stand for no memory.
#include "framework/optim/kernels.h"

namespace delink::meta {
namespace {

template <typename Args>
void Nothing(Stream&, const Args&) {}

constexpr OptimKernels kTable = {.adamw = Nothing,
                                 .sum_squares = Nothing,
                                 .finish_norm = Nothing,
                                 .sums_tail = Nothing,
                                 .sgd = Nothing,
                                 .lion = Nothing,
                                 .muon_momentum = Nothing,
                                 .muon_normalize = Nothing,
                                 .scale_add = Nothing,
                                 .muon_step = Nothing,
                                 .column_squares = Nothing,
                                 .adafactor_factors = Nothing,
                                 .adafactor_sums = Nothing,
                                 .adafactor_step = Nothing};

}  // namespace

const OptimKernels* OptimTable(DType) { return &kTable; }

}  // namespace delink::meta
