// The router of a mixture of experts: which experts each token chooses, with
// which gates, and what balances them (layers/modules/moe.h).
#pragma once

#include <cstdint>

#include "framework/autograd/tape.h"
#include "framework/module/param.h"
#include "layers/kernels/expert_arguments.h"

namespace delink::ops {

struct RouteConfig {
  int64_t top_k = 1;
  RouterForm form;
  // Of training; 0: no limit. An expert takes at most
  // ceil(capacity * N k / E) of the counted choices of a micro-batch's N
  // tokens: those with the largest gates, or the first.
  double capacity = 0;
  bool drop_by_position = false;
  // Weights of terms that are added to the loss of each counted token: of
  //   E * sum over e of (the fraction of choices that are e's * the mean share
  //   of e)
  // (Fedus et al., "Switch Transformers", 2021) over the token's sequence or
  // the micro-batch, or with the fractions of the last step (Route), and of the
  // squared log sum exp of its logits (Zoph et al., "ST-MoE", 2022). Only their
  // gradients exist.
  double aux_loss = 0;
  bool aux_over_sequence = false;
  double z_loss = 0;
};

// The sums of a step (Tape::Sums) that Route adds to, over counted tokens: the
// choices of each of E experts, then those below.
enum class RouteSum : uint8_t {
  kChoices,  // all
  kDropped,  // those above the capacity
  kEntropy,  // of a token's shares, in nats; of prototypes the mean
  kZ,        // squared log sum exp of a token's logits
  kBalance,  // the auxiliary loss, with its weight; 0 if that is 0
};
inline constexpr int64_t kRouteSums = 5;

// What N tokens chose of E experts, which this rank has: those from `first` on
// of its own. Each kept choice is a row.
//
// An expert has at most `limit` rows of a micro-batch, whatever ranks have its
// tokens: without a capacity one of each token, which chooses an expert once.
// A capacity makes the limit smaller only in training and with
// VisitInputs::all_counted. AssignRows keeps no more than the capacity of an
// expert's counted choices, and then there are no others. A dropped choice has
// no row, and the id -1 wherever choices are sent. So there are never more rows
// than E x limit x batches, which `cap` does not exceed. Evaluation drops
// nothing and is planned for all choices.
struct Routing {
  int64_t N, E, k;
  int64_t cap;      // the most rows that there can be
  int64_t limit;    // of an expert, of a micro-batch
  int64_t batches;  // micro-batches that the tokens can be of, at most
  int64_t choices;  // of the rank's own tokens: its share of the work
  // Of all experts, of all ranks.
  int64_t experts, prototypes;
  Var gates;                 // [N, k], in the statistics' type
  Var offsets, rows, pairs;  // i32, as AssignRowsArgs has them
  // i32 [N, k], of pairs that are kept, else -1. Defined if the choices are to
  // go to other ranks yet (expert_exchange.h).
  Var ids = {};
  int64_t first = 0;
};

// x w^T of x [..., D] and an exact w [E, D]: [N, E] in the statistics' type.
Var RouterLogits(Var x, Param& w);

// From logits [N, E]. `bias` [E], which may be null, takes part in the choice
// alone. With `loads` [E] (ParamSpec::router_loads) the auxiliary loss has
// these in place of the tokens' own. Both get a gradient of zeros. Tokens whose
// target is not counted take no capacity and have no part in the terms.
// The result is of all E experts, wherever they are.
Routing Route(Var logits, const RouteConfig& c, Param* bias,
              Param* loads = nullptr);

}  // namespace delink::ops
