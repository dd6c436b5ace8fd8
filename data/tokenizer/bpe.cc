#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <tuple>

namespace delink {
namespace {

uint64_t Key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids,
         const std::vector<Merge>& merges)
    : byte_ids_(byte_ids) {
  merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    merges_[Key(merges[rank].left, merges[rank].right)] = {
        .rank = static_cast<int32_t>(rank), .id = merges[rank].result};
  }
}

const Bpe::Result* Bpe::Find(int32_t left, int32_t right) const {
  const auto found = merges_.find(Key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::AddCandidate(int32_t at, Scratch& scratch) const {
  if (at < 0) return;
  const Scratch::Symbol& left = scratch.symbols_[static_cast<size_t>(at)];
  if (left.after < 0) return;
  const Result* const result =
      Find(left.id, scratch.symbols_[static_cast<size_t>(left.after)].id);
  if (result == nullptr) return;
  scratch.heap_.push_back(
      {.rank = result->rank, .at = at, .result = result->id});
}

void Bpe::Encode(std::string_view word, Scratch& scratch,
                 std::vector<int32_t>* ids) const {
  using Candidate = Scratch::Candidate;
  std::vector<Scratch::Symbol>& symbols = scratch.symbols_;
  std::vector<Candidate>& heap = scratch.heap_;
  symbols.clear();
  heap.clear();
  const int32_t size = static_cast<int32_t>(word.size());
  for (int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<size_t>(i)]);
    symbols.push_back({.id = byte_ids_[byte],
                       .before = i - 1,
                       .after = i + 1 == size ? -1 : i + 1});
  }
  for (int32_t i = 0; i < size; ++i) AddCandidate(i, scratch);
  const auto later = [](const Candidate& a, const Candidate& b) {
    return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
  };
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    const Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.at)];
    if (left.id < 0 || left.after < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.after)];
    // One of the two may have been merged since.
    const Result* const result = Find(left.id, right.id);
    if (result == nullptr || result->id != best.result) continue;
    left.id = best.result;
    left.after = right.after;
    right.id = -1;
    if (left.after >= 0) {
      symbols[static_cast<size_t>(left.after)].before = best.at;
    }
    for (const int32_t at : {left.before, best.at}) {
      const size_t before = heap.size();
      AddCandidate(at, scratch);
      if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
    }
  }
  for (const Scratch::Symbol& symbol : symbols) {
    if (symbol.id >= 0) ids->push_back(symbol.id);
  }
}

}  // namespace delink
