#include "data/corpus/check.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus/corpus_digest.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr int64_t kBlock = 256 << 10;

// A hash of a document's ids. With 64 bits, two of a billion documents hardly
// ever have the same hash unless they are equal.
class TokenHash {
 public:
  void Add(int32_t id) {
    state_ = (state_ ^ static_cast<uint32_t>(id)) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 29;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xCBF29CE484222325u;
};

class Checker {
 public:
  explicit Checker(const Corpus& corpus)
      : corpus_(corpus),
        used_(static_cast<size_t>(corpus.vocab_size()), false) {}

  absl::StatusOr<CorpusCheck> Run(
      const std::function<void(int64_t)>& advanced) {
    DELINK_RETURN_IF_ERROR(ReadStart());
    if (next_start_ != 0) {
      return Wrong(
          absl::StrCat("its first document begins at token ", next_start_));
    }
    std::vector<int32_t> ids;
    for (int64_t begin = 0; begin < corpus_.tokens(); begin += kBlock) {
      ids.resize(
          static_cast<size_t>(std::min(kBlock, corpus_.tokens() - begin)));
      const int64_t count = static_cast<int64_t>(ids.size());
      DELINK_RETURN_IF_ERROR(corpus_.Read(begin, count, ids.data()));
      if (corpus_.vocab_size() <= 65'536) {
        digest_.AddTokens(std::vector<uint16_t>(ids.begin(), ids.end()));
      } else {
        digest_.AddTokens(std::vector<uint32_t>(ids.begin(), ids.end()));
      }
      for (int64_t i = 0; i < count; ++i) {
        DELINK_RETURN_IF_ERROR(Add(begin + i, At(ids, i)));
      }
      if (advanced) advanced(begin + count);
    }
    DELINK_RETURN_IF_ERROR(Finish());
    return std::move(check_);
  }

 private:
  absl::Status Wrong(const std::string& what) const {
    return absl::DataLossError(
        absl::StrCat(corpus_.dir(), ": ", what, "; build the corpus again"));
  }

  absl::Status Add(int64_t at, int32_t id) {
    At(used_, id) = true;
    if (at == next_start_) DELINK_RETURN_IF_ERROR(Begin(at));
    hash_.Add(id);
    if (id != corpus_.end_of_document()) return absl::OkStatus();
    ended_ = at + 1;
    return End();
  }

  absl::Status Begin(int64_t at) {
    if (ended_ != at) {
      return Wrong(absl::StrCat("document ", document_, " begins at token ", at,
                                ", but the previous one has not ended"));
    }
    hash_ = TokenHash();
    start_ = at;
    ++document_;
    return ReadStart();
  }

  absl::Status End() {
    if (next_start_ != ended_) {
      return Wrong(absl::StrCat("document ", document_ - 1, " ends at token ",
                                ended_ - 1, ", but the next begins at ",
                                next_start_));
    }
    const int64_t length = ended_ - start_;
    check_.lengths.push_back(length);
    if (!seen_.insert(hash_.value()).second) {
      ++check_.repeated_documents;
      check_.repeated_tokens += length;
    }
    return absl::OkStatus();
  }

  // Sets next_start_ to the start of document `document_`; reads starts in
  // blocks.
  absl::Status ReadStart() {
    if (document_ == corpus_.documents()) {
      next_start_ = corpus_.tokens();
      return absl::OkStatus();
    }
    if (document_ == starts_end_) {
      starts_.resize(static_cast<size_t>(
          std::min(kBlock, corpus_.documents() - document_)));
      const int64_t count = static_cast<int64_t>(starts_.size());
      DELINK_RETURN_IF_ERROR(
          corpus_.ReadDocumentStarts(document_, count, starts_.data()));
      digest_.AddDocuments(starts_);
      starts_end_ += count;
    }
    next_start_ = *(starts_.end() - (starts_end_ - document_));
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (ended_ != corpus_.tokens() || document_ != corpus_.documents()) {
      return Wrong(absl::StrCat("its last document, ", document_ - 1, " of ",
                                corpus_.documents(),
                                ", does not end at its last token"));
    }
    const std::string digest = digest_.Hex(corpus_.tokenizer_bytes());
    if (digest != corpus_.digest()) {
      return Wrong(absl::StrCat("the digest of its tokens is ", digest,
                                ", but its index says ", corpus_.digest()));
    }
    check_.document_keys.assign(seen_.begin(), seen_.end());
    std::sort(check_.document_keys.begin(), check_.document_keys.end());
    std::sort(check_.lengths.begin(), check_.lengths.end());
    check_.ids_used = std::count(used_.begin(), used_.end(), true);
    for (size_t id = 0; id < used_.size(); ++id) {
      if (used_[id]) check_.largest_id = static_cast<int32_t>(id);
    }
    return absl::OkStatus();
  }

  const Corpus& corpus_;
  CorpusCheck check_;
  std::vector<bool> used_;  // [vocab]
  CorpusDigest digest_;
  std::unordered_set<uint64_t> seen_;
  TokenHash hash_;

  int64_t document_ = 0;    // documents begun
  int64_t start_ = 0;       // of the one being read
  int64_t next_start_ = 0;  // of the one after
  int64_t ended_ = 0;       // past the last end of a document
  std::vector<int64_t> starts_;
  int64_t starts_end_ = 0;  // documents up to the end of starts_
};

}  // namespace

int64_t CorpusCheck::Quantile(double share) const {
  if (lengths.empty()) return 0;
  const double last = static_cast<double>(lengths.size());
  const auto at =
      static_cast<size_t>(std::max(0.0, std::ceil(share * last) - 1));
  return lengths[std::min(at, lengths.size() - 1)];
}

absl::StatusOr<CorpusCheck> CheckCorpus(
    const Corpus& corpus, const std::function<void(int64_t)>& advanced) {
  return Checker(corpus).Run(advanced);
}

int64_t CountShared(const std::vector<uint64_t>& keys,
                    const std::vector<uint64_t>& others) {
  return std::count_if(keys.begin(), keys.end(), [&](uint64_t key) {
    return std::binary_search(others.begin(), others.end(), key);
  });
}

}  // namespace delink
