#include "data/corpus/corpus_writer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/hdf5/hdf5.h"

namespace delink {
namespace {

namespace format = corpus_format;

absl::Status WriteTokenizer(hdf5::File& file, const Tokenizer& tokenizer) {
  const std::string& bytes = tokenizer.Serialize();
  return file.WriteAll(format::kTokenizer, {static_cast<int64_t>(bytes.size())},
                       reinterpret_cast<const uint8_t*>(bytes.data()));
}

absl::Status WriteCommon(hdf5::File& file, const Tokenizer& tokenizer) {
  DELINK_RETURN_IF_ERROR(file.SetText("/", format::kKind, format::kKindValue));
  DELINK_RETURN_IF_ERROR(file.SetInt("/", format::kFormat, format::kVersion));
  DELINK_RETURN_IF_ERROR(
      file.SetInt("/", format::kVocab, tokenizer.vocab_size()));
  DELINK_RETURN_IF_ERROR(
      file.SetInt("/", format::kEndOfDocument, tokenizer.end_of_document()));
  DELINK_RETURN_IF_ERROR(
      file.SetText("/", format::kTokenizerKind, tokenizer.kind()));
  return WriteTokenizer(file, tokenizer);
}

// Joins the datasets `name` of all shards, of `sizes`, in a virtual one.
absl::Status WriteWhole(hdf5::File& file, const char* name,
                        hdf5::ElementType type,
                        const std::vector<int64_t>& sizes) {
  std::vector<hdf5::Piece> pieces;
  int64_t begin = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) continue;
    pieces.push_back({.begin = begin,
                      .end = begin + sizes[i],
                      .file = format::ShardFile(static_cast<int64_t>(i)),
                      .dataset = name});
    begin += sizes[i];
  }
  return file.CreateVirtual(name, type, {begin}, std::move(pieces));
}

}  // namespace

CorpusWriter::CorpusWriter(std::string dir, const Tokenizer& tokenizer,
                           int64_t shard_tokens)
    : dir_(std::move(dir)),
      tokenizer_(tokenizer),
      shard_tokens_(shard_tokens),
      narrow_(tokenizer.vocab_size() <= 65'536),
      counts_(static_cast<size_t>(tokenizer.vocab_size()), 0) {
  DELINK_CHECK_GT(shard_tokens, 0);
}

absl::Status CorpusWriter::Append(std::span<const int32_t> ids, int64_t bytes) {
  if (!in_document_) {
    in_document_ = true;
    ++documents_;
    starts_.push_back(tokens_);
    lengths_.push_back(0);
  }
  bytes_ += bytes;
  lengths_.back() += static_cast<int64_t>(ids.size());
  for (const int32_t id : ids) DELINK_RETURN_IF_ERROR(Push(id));
  return absl::OkStatus();
}

absl::Status CorpusWriter::EndDocument() {
  DELINK_CHECK(in_document_);
  DELINK_RETURN_IF_ERROR(Push(tokenizer_.end_of_document()));
  ++lengths_.back();
  in_document_ = false;
  return absl::OkStatus();
}

absl::Status CorpusWriter::Push(int32_t id) {
  ++At(counts_, id);
  ++tokens_;
  if (narrow_) {
    narrow_tokens_.push_back(static_cast<uint16_t>(id));
  } else {
    wide_tokens_.push_back(static_cast<uint32_t>(id));
  }
  const size_t held = narrow_tokens_.size() + wide_tokens_.size();
  if (static_cast<int64_t>(held) < shard_tokens_) return absl::OkStatus();
  return WriteShard();
}

absl::Status CorpusWriter::WriteShard() {
  const int64_t count =
      static_cast<int64_t>(narrow_tokens_.size() + wide_tokens_.size());
  if (count == 0) return absl::OkStatus();
  const int64_t starts = static_cast<int64_t>(starts_.size());
  digest_.AddTokens(narrow_tokens_);
  digest_.AddTokens(wide_tokens_);
  digest_.AddDocuments(starts_);

  const std::string name =
      format::ShardFile(static_cast<int64_t>(shard_sizes_.size()));
  DELINK_ASSIGN_OR_RETURN(hdf5::File file,
                          hdf5::File::Create(JoinPath(dir_, name)));
  DELINK_RETURN_IF_ERROR(WriteCommon(file, tokenizer_));
  DELINK_RETURN_IF_ERROR(
      file.SetInt("/", format::kFirstToken, tokens_ - count));
  DELINK_RETURN_IF_ERROR(
      narrow_ ? file.WriteAll(format::kTokens, {count}, narrow_tokens_.data())
              : file.WriteAll(format::kTokens, {count}, wide_tokens_.data()));
  DELINK_RETURN_IF_ERROR(
      file.WriteAll(format::kDocuments, {starts}, starts_.data()));
  DELINK_RETURN_IF_ERROR(file.Close());
  shard_sizes_.push_back(count);
  shard_documents_.push_back(starts);
  narrow_tokens_.clear();
  wide_tokens_.clear();
  starts_.clear();
  return absl::OkStatus();
}

double CorpusWriter::Entropy() const {
  if (tokens_ == 0) return 0;
  double sum = 0;
  for (const int64_t count : counts_) {
    if (count == 0) continue;
    const double n = static_cast<double>(count);
    sum += n * std::log(n);
  }
  const double total = static_cast<double>(tokens_);
  return std::log(total) - sum / total;
}

double CorpusWriter::MedianLength() {
  if (lengths_.empty()) return 0;
  const auto middle =
      lengths_.begin() + static_cast<std::ptrdiff_t>(lengths_.size() / 2);
  std::nth_element(lengths_.begin(), middle, lengths_.end());
  if (lengths_.size() % 2 == 1) return static_cast<double>(*middle);
  const int64_t below = *std::max_element(lengths_.begin(), middle);
  return static_cast<double>(below + *middle) / 2;
}

absl::Status CorpusWriter::WriteIndex() {
  DELINK_ASSIGN_OR_RETURN(
      hdf5::File file, hdf5::File::Create(JoinPath(dir_, format::kIndexFile)));
  DELINK_RETURN_IF_ERROR(WriteCommon(file, tokenizer_));
  DELINK_RETURN_IF_ERROR(file.SetInt("/", format::kTokenCount, tokens_));
  DELINK_RETURN_IF_ERROR(file.SetInt("/", format::kDocumentCount, documents_));
  DELINK_RETURN_IF_ERROR(file.SetInt("/", format::kByteCount, bytes_));
  DELINK_RETURN_IF_ERROR(file.SetDouble("/", format::kEntropy, Entropy()));
  DELINK_RETURN_IF_ERROR(
      file.SetDouble("/", format::kMedianLength, MedianLength()));
  DELINK_RETURN_IF_ERROR(file.SetInt(
      "/", format::kGreatestLength,
      lengths_.empty() ? 0
                       : *std::max_element(lengths_.begin(), lengths_.end())));
  DELINK_RETURN_IF_ERROR(
      file.SetText("/", format::kDigest, digest_.Hex(tokenizer_.Serialize())));
  DELINK_RETURN_IF_ERROR(file.WriteAll(
      format::kShardTokens, {static_cast<int64_t>(shard_sizes_.size())},
      shard_sizes_.data()));
  DELINK_RETURN_IF_ERROR(
      WriteWhole(file, format::kTokens,
                 narrow_ ? hdf5::ElementType::kU16 : hdf5::ElementType::kU32,
                 shard_sizes_));
  DELINK_RETURN_IF_ERROR(WriteWhole(file, format::kDocuments,
                                    hdf5::ElementType::kI64, shard_documents_));
  return file.Close();
}

absl::Status CorpusWriter::Finish() {
  DELINK_CHECK(!in_document_);
  DELINK_RETURN_IF_ERROR(WriteShard());
  DELINK_RETURN_IF_ERROR(WriteIndex());
  DELINK_RETURN_IF_ERROR(WriteFile(JoinPath(dir_, format::kTokenizerFile),
                                   tokenizer_.Serialize()));
  std::vector<std::string> names = {format::kIndexFile, format::kTokenizerFile};
  for (size_t i = 0; i < shard_sizes_.size(); ++i) {
    names.push_back(format::ShardFile(static_cast<int64_t>(i)));
  }
  return WriteSums(dir_, names);
}

}  // namespace delink
