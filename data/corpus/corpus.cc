#include "data/corpus/corpus.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/corpus/format.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/mutex.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/hdf5/hdf5.h"

namespace delink {
namespace {

namespace format = corpus_format;

// Stays below the usual limit of 1024 open files.
constexpr size_t kOpenShards = 256;

absl::Status CheckPlace(const std::string& dir) {
  if (!IsDirectory(dir)) {
    return absl::NotFoundError(absl::StrCat(
        dir, ": no such corpus folder; make one with delink data build"));
  }
  const std::string train = JoinPath(dir, "train");
  if (!PathExists(JoinPath(dir, kSumsName)) && IsDirectory(train)) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": holds two sides of a corpus; name one of them, ",
                     train, " or ", JoinPath(dir, "validation")));
  }
  return absl::OkStatus();
}

absl::Status Verify(const std::string& dir, const CorpusOpening& opening) {
  if (!opening.statistics_only) {
    return VerifySums(dir, opening.verify_index, opening.verify_count);
  }
  DELINK_ASSIGN_OR_RETURN(const std::vector<FileSum> sums, ReadSums(dir));
  DELINK_RETURN_IF_ERROR(VerifyListing(dir, sums));
  for (const FileSum& sum : sums) {
    if (sum.name == format::kIndexFile) return VerifySum(dir, sum);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(dir, ": not a corpus: it has no ", format::kIndexFile,
                   "; name a folder that delink data build wrote"));
}

absl::Status CheckFormat(const hdf5::File& file) {
  if (file.GetText("/", format::kKind).value_or("") != format::kKindValue) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(),
                     ": not the index of a corpus; name a folder that delink "
                     "data build wrote"));
  }
  DELINK_ASSIGN_OR_RETURN(const int64_t version,
                          file.GetInt("/", format::kFormat));
  if (version < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": format ", version,
                     ", which does not exist; another program wrote it"));
  }
  if (version > format::kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        file.path(), ": format ", version, ", this program reads up to ",
        format::kVersion, "; use a newer delink, or build the corpus again"));
  }
  return absl::OkStatus();
}

absl::Status Inconsistent(const std::string& path, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat(path, ": ", what, "; build the corpus again"));
}

// Turns the sizes of shards into their ends. They must add up to `tokens`.
absl::Status SumUp(const std::string& path, int64_t tokens,
                   std::vector<int64_t>& shards) {
  int64_t end = 0;
  for (int64_t& shard : shards) {
    if (shard < 0 || shard > tokens - end) {
      return Inconsistent(path, "the sizes of its shards make no sense");
    }
    end += shard;
    shard = end;
  }
  if (shards.empty() || end != tokens) {
    return Inconsistent(path, absl::StrCat("its shards do not hold the ",
                                           tokens, " tokens it claims"));
  }
  return absl::OkStatus();
}

}  // namespace

struct Corpus::State {
  std::string dir;
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t bytes = 0;
  int32_t vocab_size = 0;
  int32_t end_of_document = 0;
  double entropy = 0;
  double median_document = 0;
  int64_t greatest_document = 0;
  std::string tokenizer_kind;
  std::string tokenizer_bytes;
  std::string digest;
  std::vector<int64_t> shard_ends;  // [shards], global

  Mutex mutex;
  std::optional<hdf5::Dataset> document_starts ABSL_GUARDED_BY(mutex);
  std::vector<std::optional<hdf5::Dataset>> shards ABSL_GUARDED_BY(mutex);
  // The open shards, longest open first.
  std::vector<size_t> open ABSL_GUARDED_BY(mutex);

  absl::Status ReadIndex(hdf5::File& index)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::StatusOr<const hdf5::Dataset*> Shard(size_t shard)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

absl::Status Corpus::State::ReadIndex(hdf5::File& index) {
  DELINK_RETURN_IF_ERROR(CheckFormat(index));
  DELINK_ASSIGN_OR_RETURN(tokens, index.GetInt("/", format::kTokenCount));
  DELINK_ASSIGN_OR_RETURN(documents, index.GetInt("/", format::kDocumentCount));
  DELINK_ASSIGN_OR_RETURN(bytes, index.GetInt("/", format::kByteCount));
  DELINK_ASSIGN_OR_RETURN(const int64_t vocab,
                          index.GetInt("/", format::kVocab));
  DELINK_ASSIGN_OR_RETURN(const int64_t end,
                          index.GetInt("/", format::kEndOfDocument));
  if (vocab < 1 || vocab > std::numeric_limits<int32_t>::max() || end < 0 ||
      end >= vocab || bytes < 0) {
    return Inconsistent(index.path(),
                        absl::StrCat("a vocabulary of ", vocab, " with ", end,
                                     " for the end of a document, and ", bytes,
                                     " bytes of text, make no sense"));
  }
  vocab_size = static_cast<int32_t>(vocab);
  end_of_document = static_cast<int32_t>(end);
  DELINK_ASSIGN_OR_RETURN(entropy, index.GetDouble("/", format::kEntropy));
  median_document = index.GetDouble("/", format::kMedianLength).value_or(0);
  greatest_document = index.GetInt("/", format::kGreatestLength).value_or(0);
  DELINK_ASSIGN_OR_RETURN(tokenizer_kind,
                          index.GetText("/", format::kTokenizerKind));
  DELINK_ASSIGN_OR_RETURN(digest, index.GetText("/", format::kDigest));
  DELINK_ASSIGN_OR_RETURN(const std::vector<uint8_t> tokenizer,
                          index.ReadAll<uint8_t>(format::kTokenizer));
  tokenizer_bytes.assign(tokenizer.begin(), tokenizer.end());
  DELINK_ASSIGN_OR_RETURN(shard_ends,
                          index.ReadAll<int64_t>(format::kShardTokens));
  DELINK_RETURN_IF_ERROR(SumUp(index.path(), tokens, shard_ends));
  DELINK_ASSIGN_OR_RETURN(hdf5::Dataset starts,
                          index.OpenDataset(format::kDocuments));
  if (starts.size() != documents) {
    return Inconsistent(
        index.path(),
        absl::StrCat("claims ", documents, " documents, has ", starts.size()));
  }
  document_starts.emplace(std::move(starts));
  shards.resize(shard_ends.size());
  return absl::OkStatus();
}

absl::StatusOr<const hdf5::Dataset*> Corpus::State::Shard(size_t shard) {
  std::optional<hdf5::Dataset>& dataset = shards[shard];
  if (dataset.has_value()) return &*dataset;
  if (open.size() == kOpenShards) {
    shards[open.front()].reset();
    open.erase(open.begin());
  }
  DELINK_ASSIGN_OR_RETURN(
      const hdf5::File file,
      hdf5::File::OpenReadOnly(
          JoinPath(dir, format::ShardFile(static_cast<int64_t>(shard)))));
  DELINK_ASSIGN_OR_RETURN(hdf5::Dataset opened,
                          file.OpenDataset(format::kTokens));
  dataset.emplace(std::move(opened));
  open.push_back(shard);
  return &*dataset;
}

Corpus::Corpus(std::shared_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<Corpus> Corpus::Open(const std::string& dir,
                                    const CorpusOpening& opening) {
  DELINK_RETURN_IF_ERROR(CheckPlace(dir));
  DELINK_RETURN_IF_ERROR(Verify(dir, opening));
  auto state = std::make_shared<State>();
  state->dir = dir;
  DELINK_ASSIGN_OR_RETURN(
      hdf5::File index,
      hdf5::File::OpenReadOnly(JoinPath(dir, format::kIndexFile),
                               format::kShards));
  {
    const MutexLock lock(state->mutex);
    DELINK_RETURN_IF_ERROR(state->ReadIndex(index));
  }
  return Corpus(std::move(state));
}

const std::string& Corpus::dir() const { return state_->dir; }
int64_t Corpus::tokens() const { return state_->tokens; }
int64_t Corpus::documents() const { return state_->documents; }
int64_t Corpus::bytes() const { return state_->bytes; }
int64_t Corpus::shards() const {
  return static_cast<int64_t>(state_->shard_ends.size());
}
int32_t Corpus::vocab_size() const { return state_->vocab_size; }
int32_t Corpus::end_of_document() const { return state_->end_of_document; }
double Corpus::entropy() const { return state_->entropy; }
double Corpus::median_document() const { return state_->median_document; }
int64_t Corpus::greatest_document() const { return state_->greatest_document; }
const std::string& Corpus::tokenizer_kind() const {
  return state_->tokenizer_kind;
}
const std::string& Corpus::tokenizer_bytes() const {
  return state_->tokenizer_bytes;
}
const std::string& Corpus::digest() const { return state_->digest; }

absl::StatusOr<std::unique_ptr<Tokenizer>> Corpus::MakeTokenizer() const {
  return LoadTokenizer(tokenizer_bytes(), dir());
}

absl::Status Corpus::Read(int64_t begin, int64_t count, int32_t* ids) const {
  DELINK_CHECK(begin >= 0 && count >= 0 && begin <= tokens() - count)
      << begin << " + " << count << " of " << tokens();
  const std::vector<int64_t>& ends = state_->shard_ends;
  size_t shard = static_cast<size_t>(
      std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
  std::vector<uint16_t> narrow;
  const MutexLock lock(state_->mutex);
  for (; count > 0; ++shard) {
    const int64_t first = shard == 0 ? 0 : ends[shard - 1];
    const int64_t part = std::min(count, ends[shard] - begin);
    DELINK_ASSIGN_OR_RETURN(const hdf5::Dataset* dataset, state_->Shard(shard));
    if (dataset->info().type == hdf5::ElementType::kU16) {
      narrow.resize(static_cast<size_t>(part));
      DELINK_RETURN_IF_ERROR(dataset->Read(begin - first, part, narrow.data()));
      std::copy(narrow.begin(), narrow.end(), ids);
    } else {
      // Ids are below 2^31, so the two types have the same bytes.
      DELINK_RETURN_IF_ERROR(
          dataset->Read(hdf5::ElementType::kU32, begin - first, part, ids));
    }
    for (int64_t i = 0; i < part; ++i) {
      if (0 <= ids[i] && ids[i] < vocab_size()) continue;
      return Inconsistent(
          JoinPath(dir(), format::ShardFile(static_cast<int64_t>(shard))),
          absl::StrCat("token ", begin + i - first, " is ",
                       static_cast<uint32_t>(ids[i]),
                       ", past the vocabulary of ", vocab_size()));
    }
    ids += part;
    begin += part;
    count -= part;
  }
  return absl::OkStatus();
}

absl::Status Corpus::ReadDocumentStarts(int64_t begin, int64_t count,
                                        int64_t* starts) const {
  const MutexLock lock(state_->mutex);
  DELINK_RETURN_IF_ERROR(state_->document_starts->Read(begin, count, starts));
  for (int64_t i = 0; i < count; ++i) {
    if (0 <= starts[i] && starts[i] < tokens()) continue;
    return Inconsistent(
        JoinPath(dir(), format::kIndexFile),
        absl::StrCat("document ", begin + i, " starts at token ", starts[i],
                     " of ", tokens()));
  }
  return absl::OkStatus();
}

}  // namespace delink
