// The cross-entropy of logits whose columns are cut over ranks: every piece's
// steps, with what ranks exchange between them made here.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

constexpr int32_t kIgnored = -100;

struct Shape {
  int64_t N;
  std::vector<int64_t> columns;  // of each piece
  bool want_grad;
  double size;
  double z_weight = 0;
};

std::string NameOf(const Shape& p) {
  return absl::StrFormat("vocab N%d V%s grad%d size%g z%g", p.N,
                         absl::StrJoin(p.columns, "+"), p.want_grad, p.size,
                         p.z_weight);
}

// Of each piece: its columns, where they begin, and its logits, with a gap
// behind every row.
template <typename T>
struct Piece {
  int64_t V, first, ld;
  Guarded<T> logits;
};
template <typename T>
std::vector<Piece<T>> PiecesOf(const Shape& p) {
  std::vector<Piece<T>> pieces;
  int64_t first = 0;
  for (const int64_t V : p.columns) {
    const int64_t ld = V + V % 3;
    pieces.push_back(
        {V, first, ld,
         Input<T>("logits" + std::to_string(first), p.N * ld, p.size)});
    first += V;
  }
  return pieces;
}

// What all pieces know before the last step.
struct Statistics {
  Guarded<double> max, sums;
};
template <typename T>
Statistics StatisticsOf(const Kernels& kernels, Stream& stream, int64_t N,
                        const std::vector<Piece<T>>& pieces,
                        const Guarded<int32_t>& targets) {
  Statistics all = {Guarded<double>(N), Guarded<double>(2 * N)};
  std::fill_n(all.max.data(), N, -1e300);
  std::fill_n(all.sums.data(), 2 * N, 0.0);
  for (const Piece<T>& piece : pieces) {
    Guarded<double> max(N);
    kernels.vocab_max(stream, {.N = N,
                               .V = piece.V,
                               .ld = piece.ld,
                               .logits = piece.logits.data(),
                               .max = max.data()});
    for (int64_t n = 0; n < N; ++n) all.max[n] = std::max(all.max[n], max[n]);
  }
  for (const Piece<T>& piece : pieces) {
    Guarded<double> sums(2 * N);
    kernels.vocab_sums(stream, {.N = N,
                                .V = piece.V,
                                .ld = piece.ld,
                                .logits = piece.logits.data(),
                                .first_token = piece.first,
                                .targets = targets.data(),
                                .ignore_index = kIgnored,
                                .max = all.max.data(),
                                .sums = sums.data()});
    for (int64_t n = 0; n < 2 * N; ++n) all.sums[n] += sums[n];
  }
  return all;
}

Case VocabCase(const Shape& p) {
  return MakeCase(
      NameOf(p),
      [p]<typename T>(const Kernels& kernels, Stream& stream) -> Outputs {
        std::vector<Piece<T>> pieces = PiecesOf<T>(p);
        const int64_t V = pieces.back().first + pieces.back().V;
        Guarded<int32_t> targets(
            Integers("targets", p.N, static_cast<int32_t>(V)));
        for (int64_t n = 2; n < p.N; n += 3) targets[n] = kIgnored;
        const Statistics all =
            StatisticsOf(kernels, stream, p.N, pieces, targets);
        const double tolerance = 1e-6 * (1.0 + p.size);
        Outputs outputs = {Result("max", all.max, 0.0),
                           Result("sums", all.sums, tolerance)};
        Guarded<double> loss_sum(std::vector{1.5}), z_sum(std::vector{2.5});
        Guarded<int64_t> count(std::vector<int64_t>{10});
        for (Piece<T>& piece : pieces) {
          Guarded<double> row_loss(p.N), row_z(p.z_weight != 0 ? p.N : 0);
          kernels.vocab_cross_entropy(stream, {.N = p.N,
                                               .V = piece.V,
                                               .ld = piece.ld,
                                               .logits = piece.logits.data(),
                                               .first_token = piece.first,
                                               .targets = targets.data(),
                                               .ignore_index = kIgnored,
                                               .want_grad = p.want_grad,
                                               .counts = piece.first == 0,
                                               .max = all.max.data(),
                                               .sums = all.sums.data(),
                                               .row_loss = row_loss.data(),
                                               .loss_sum = loss_sum.data(),
                                               .count = count.data(),
                                               .z_weight = p.z_weight,
                                               .row_z = row_z.data(),
                                               .z_sum = z_sum.data()});
          outputs.push_back(Result("logits", piece.logits,
                                   p.want_grad ? Tolerance<float>(1) : 0.0));
          outputs.push_back(Result("row_loss", row_loss, tolerance));
          outputs.push_back(Result("row_z", row_z, tolerance));
        }
        outputs.push_back(Result("loss_sum", loss_sum, tolerance));
        outputs.push_back(Result("z_sum", z_sum, tolerance));
        outputs.push_back(Result("count", count, 0.0));
        return outputs;
      });
}

}  // namespace

std::vector<Case> VocabCases() {
  std::vector<Case> cases;
  for (const int64_t V : kUglySizes) {
    cases.push_back(VocabCase({4, {V, V + 1}, true, 3.0}));
    cases.push_back(VocabCase({2, {V}, false, 30.0, 1e-4}));
    cases.push_back(VocabCase({5, {1, V, 2}, true, 3.0, 0.25}));
  }
  // Pieces without a column, of a block and beside, and of vocabularies as they
  // are.
  cases.push_back(VocabCase({4, {1, 0, 2, 0}, true, 3.0}));
  cases.push_back(VocabCase({7, {1024, 1025, 1023}, true, 40.0}));
  cases.push_back(VocabCase({7, {1024, 1025, 1023}, false, 1.0}));
  cases.push_back(VocabCase({2, {13'001, 13'001}, true, 3.0, 1e-4}));
  cases.push_back(VocabCase({300, {2, 3}, true, 2.0, 1e-2}));
  cases.push_back(VocabCase({0, {16, 16}, true, 1.0}));
  return cases;
}

}  // namespace delink::testing
