// Arguments of the kernels of mixtures of experts (arguments.h has the contract
// for all).
//
// Each of N tokens chooses k of E experts, in an order from 0 to k - 1. Pair
// n k + j is choice j of token n. The pairs that are kept are rows, ordered by
// (expert, token); rows [offsets[e], offsets[e + 1]) are those of expert e. How
// many rows there are, offsets[E], is known on the device alone; arrays of rows
// have memory for `cap` rows, and those past offsets[E] are neither read nor
// written. N k is less than 2^31.
#pragma once

#include <cstdint>

namespace delink {

// How a router chooses. The E experts are `prototypes` equal ranges, and a
// token chooses k / prototypes of each, range by range. A score is the softmax
// of the range's logits or, with `sigmoid`, of each logit alone. Those with the
// largest logit, or with a bias the largest score + bias, are chosen, the
// largest first, and of equal ones the lower expert. If a logit or bias of the
// range is not finite, the token gets the range's first experts, and NaN gates.
// With top_groups, a range is `groups` equal groups, and experts are chosen
// from the top_groups of them whose two largest score + bias have the largest
// sum, of equal ones the lower group.
//
// A gate is scale * score; with `normalise`, scale * score / (sum of the scores
// that the token chose in the range + 1e-20).
struct RouterForm {
  int64_t prototypes = 1;
  bool sigmoid = false;
  bool normalise = false;
  int64_t groups = 1, top_groups = 0;  // 0: all
  double scale = 1;
};
struct RouteArgs {
  int64_t N, E, k;
  RouterForm form;
  const void* logits;          // [N, E] S
  const void* bias = nullptr;  // [E] S, may be null
  void* gates;                 // [N, k] S
  int32_t* ids;                // [N, k]
};
// Gradient of the logits, which gates and auxiliary losses have part in.
// Without gradient of `ids` or bias. A token's share p of an expert is its
// score over the sum of its range's scores.
struct RouteBackwardArgs {
  int64_t N, E, k;
  RouterForm form;
  const void* logits;  // [N, E] S
  const int32_t* ids;  // [N, k]
  const void* dgates;  // [N, k] S
  void* dlogits;       // [N, E] S
  // Gradient of shares, the same for all tokens of a group (CountPairsArgs);
  // may be null.
  const void* dshares = nullptr;  // [groups, E] S
  int64_t tokens = 1, first = 0;
  // [N], may be null: of each token the sum of share * its gradient, 0 if it
  // has no part.
  double* balance = nullptr;
  // Gradient of the squared logarithm of sum(exp(logits)).
  double dz = 0;
  // Tokens whose target is negative have no part in dshares and dz; may be
  // null.
  const int32_t* targets = nullptr;  // [N]
};

// Of each token the entropy of its shares in nats, the mean over ranges, and
// the squared logarithm of sum(exp(logits)). 0 where the target is negative.
struct RouteStatisticsArgs {
  int64_t N, E;
  RouterForm form;
  const void* logits;                // [N, E] S
  const int32_t* targets = nullptr;  // [N], may be null
  double* rows;                      // [2, N]
};
// sums[r] += the sum over n of rows[r, n].
struct SumRowsArgs {
  int64_t R, N;
  const double* rows;  // [R, N]
  double* sums;        // [R]
};
// sums[e] += loads[e], sums[E] += all loads, sums[E + 1] += what of loads is
// above the capacity; 0: none.
struct RecordLoadsArgs {
  int64_t E, capacity;
  const int32_t* loads;  // [E]
  double* sums;          // [E + 2]
};

// counts[g, e] = the pairs of expert e of the tokens of group g; counts[g, E] =
// these tokens. Those whose target is negative do not count. Token n is of the
// group (first + n) / tokens.
struct CountPairsArgs {
  int64_t N, E, k, G, tokens, first = 0;
  const int32_t* ids;                // [N, k]
  const int32_t* targets = nullptr;  // [N], may be null
  double* counts;                    // [G, E + 1]
};
// dshares[g, e] = weight * E * counts[g, e] / (k * counts[g, E]), 0 without
// tokens: the gradient of the shares (RouteBackwardArgs) for a loss that is,
// for each counted token, weight * E * sum over e of (the fraction of its
// group's pairs that are e's * the mean of its group's shares of e). With
// `loads`, relative to their mean, dshares[g, e] = weight * loads[e].
struct BalanceArgs {
  int64_t G, E, k;
  double weight;
  const double* counts = nullptr;  // [G, E + 1], or
  const void* loads = nullptr;     // [E] S
  void* dshares;                   // [G, E] S
};

// Tokens of a micro-batch that are on several ranks compete for capacity in the
// order of its rows, whatever ranks have them. numbers[n] = b * R + place, for
// token first + n = b * T + t: the number of a rank's token in rows of R
// tokens. The place is places[t], or t.
struct NumberTokensArgs {
  int64_t N, T, R, first;
  const int32_t* places = nullptr;  // [T], may be null
  int32_t* numbers;                 // [N]
};
// Tokens of all ranks, in any order, to that order: number i of what is written
// is the token whose number is i. Null is neither read nor written.
struct OrderTokensArgs {
  int64_t N, k;
  const int32_t* numbers;            // [N]
  const int32_t* ids;                // [N, k]
  const void* gates = nullptr;       // [N, k] S, may be null
  const int32_t* targets = nullptr;  // [N], may be null
  int32_t* to_ids;                   // [N, k]
  void* to_gates = nullptr;          // [N, k] S, may be null
  int32_t* to_targets = nullptr;     // [N], may be null
};
// kept[n, j] = ids[n, j] - first, or -1 if that is not below E or if pair j of
// token numbers[n] (null: n) has no row.
struct KeptIdsArgs {
  int64_t N, k;
  const int32_t* numbers = nullptr;  // [N], may be null
  const int32_t* rows = nullptr;     // [all tokens, k] of AssignRowsArgs; null:
                                     // all pairs have one
  int64_t E, first = 0;
  const int32_t* ids;  // [N, k]; -1: no row
  int32_t* kept;       // [N, k], may be ids
};

// Sorts pairs into rows. A pair whose id is -1 has none. Tokens whose target is
// negative count in no load and take no capacity, and their pairs are always
// kept.
struct AssignRowsArgs {
  int64_t N, E, k;
  const int32_t* ids;                // [N, k]
  const int32_t* targets = nullptr;  // [N], may be null
  // At most so many counted pairs of an expert are kept, 0: all. They are those
  // with the largest gates (NaN is the largest), of equal ones the lower token,
  // or without `gates` the first.
  int64_t capacity = 0;
  const void* gates = nullptr;  // [N, k] S, may be null
  int32_t* offsets;             // [E + 1]
  int32_t* rows;                // [N, k]: of each pair, or -1
  int32_t* pairs;               // [N k]: of each row
  int32_t* loads;               // [E]: counted pairs, kept or not
};

// Sorts pairs into slots: of each of `ranks` ranks, which have `each` experts
// in order, `cap` slots, which its pairs take in their order. A pair that finds
// none is lost. One whose id is -1 takes none. With `once`, a token takes one
// slot of each rank that has an expert of it, whatever the number of its pairs:
// pair n ranks + r stands for token n at rank r. With `parts` a rank's experts
// are so many equal ranges, each with `cap` slots of its own: first those of
// all ranks' first ranges, then of their second.
struct AssignSlotsArgs {
  int64_t N, k, ranks, each, cap;
  int64_t parts = 1;  // 1 with `once`
  bool once = false;
  const int32_t* ids;  // [N, k]
  int32_t* slots;      // [N, k], [N, ranks] if once: of each pair, or -1
  int32_t* pairs;      // [parts ranks cap]: of each slot, or -1
  // [parts ranks cap], [ranks cap, k] if once: the expert of the pair, or those
  // of the token, among those of its range, or -1.
  int32_t* to_ids;
  double* lost;  // += the pairs that are lost; may be null

  // Ranges are in the order of their slots.
  constexpr int64_t ranges() const { return parts * ranks; }
  constexpr int64_t width() const { return each / parts; }  // experts of one
  constexpr int64_t RangeOf(int64_t id) const {
    return id / width() % parts * ranks + id / each;
  }
};

// y[row] = x[token of row]. Without offsets there are cap rows, and one whose
// pair is -1 becomes zeros.
struct GatherRowsArgs {
  int64_t E, k, cap, D;
  const int32_t* offsets;  // [E + 1], may be null
  const int32_t* pairs;    // [cap]
  const void* x;           // [N, D]
  void* y;                 // [cap, D]
};
// y[n] = the sum, in the order of j, of the rows of pairs n k + j that are
// kept. It is also the gradient of GatherRows.
struct CombineRowsArgs {
  int64_t N, k, D;
  const int32_t* rows;  // [N, k]
  const void* x;        // [cap, D]
  void* y;              // [N, D]
};

// For each expert e with rows X of x, Y of y and the matrix W = w[e]:
//   kForward  Y = X W^T     kInput  X = Y W     kWeight  W (=|+=) Y^T X
// An expert without rows gets zeros on `=`.
enum class GroupedForm : uint8_t { kForward, kInput, kWeight };
struct GroupedMatmulArgs {
  int64_t E, cap, in, out;
  GroupedForm form;
  const int32_t* offsets;  // [E + 1]
  void* x;                 // [cap, in]
  void* y;                 // [cap, out]
  void* w;                 // [E, out, in] T; with kWeight P, or T if `narrow`
  bool accumulate = false;
  bool narrow = false;
};
// y[row] += gate * b[e] for rows of e, with the gate of the row's pair, or 1
// without gates. The gradient of b is db[e] (=|+=) the sum of gate * dy, that
// of the gate of a row's pair dgates[pair] = dy[row] * b[e].
struct GroupedBiasArgs {
  int64_t E, cap, D;
  const int32_t* offsets;       // [E + 1]
  const int32_t* pairs;         // [cap]
  const void* gates = nullptr;  // [N, k] S
  const void* b;                // [E, D]
  void* y;                      // [cap, D]
};
struct GroupedBiasGradArgs {
  int64_t E, cap, D;
  const int32_t* offsets;       // [E + 1]
  const int32_t* pairs;         // [cap]
  const void* gates = nullptr;  // [N, k] S
  const void* dy;               // [cap, D]
  void* db;                     // [E, D] P
  bool accumulate = false;
};
struct GroupedBiasGatesArgs {
  int64_t E, cap, D;
  const int32_t* offsets;  // [E + 1]
  const int32_t* pairs;    // [cap]
  const void* b;           // [E, D]
  const void* dy;          // [cap, D]
  void* dgates;            // [N, k] S: of pairs that are kept; others stay
};
// y[row] = gate of the row's pair * act(x[row]). act is silu(gate) * up of rows
// [2 F], or a GELU of rows [F].
enum class ExpertActivation : uint8_t { kSwiGlu, kGeluTanh, kGeluErf };
struct ExpertActForwardArgs {
  int64_t E, cap, F;
  ExpertActivation activation;
  const int32_t* offsets;  // [E + 1]
  const int32_t* pairs;    // [cap]
  const void* gates;       // [N, k] S
  const void* x;           // [cap, 2 F] or [cap, F]
  void* y;                 // [cap, F]
};
struct ExpertActBackwardArgs {
  int64_t E, cap, F;
  ExpertActivation activation;
  const int32_t* offsets;  // [E + 1]
  const int32_t* pairs;    // [cap]
  const void* gates;       // [N, k] S
  const void* dy;          // [cap, F]
  const void* x;           // like forward's
  void* dx;                // like x, may be x
  void* dgates;            // [N, k] S: of pairs that are kept; others stay
};

}  // namespace delink
