#include "data/corpus/encoder.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "data/tokenizer/utf8.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Short documents are encoded together.
constexpr size_t kBatchBytes = 64 << 10;

absl::Status Changed() {
  return absl::AbortedError(
      "the input changed while it was read; build the corpus again once "
      "nothing writes to its files");
}

// Cuts after the first line that ends at most `slack` bytes after `at`, if the
// piece goes on after it, else at `at`; never at the very start of a document.
size_t CutAt(std::string_view piece, size_t at, int64_t slack, bool begins) {
  const size_t newline = piece.find('\n', at);
  if (newline != std::string_view::npos && newline + 1 < piece.size() &&
      static_cast<int64_t>(newline - at) <= slack) {
    return newline + 1;
  }
  at = CharacterBoundary(piece, at);
  if (at == 0 && begins) {
    at = 1;
    while (at < piece.size() && CharacterBoundary(piece, at) != at) ++at;
  }
  return at;
}

}  // namespace

Encoder::Encoder(const Tokenizer& tokenizer, const DocumentScan& scan,
                 Sides sides, Reporter& reporter)
    : tokenizer_(tokenizer),
      scan_(scan),
      sides_{&sides.train, &sides.validation},
      reporter_(reporter) {}

absl::Status Encoder::Run(DocumentReader& reader, int threads) {
  OrderedWorkers<Batch> workers(threads, [this](Batch& batch) {
    for (Part& part : batch.parts) {
      batch.status = tokenizer_.Encode(part.text, &part.ids);
      if (!batch.status.ok()) return;
    }
  });
  bool more = true;
  while (more || !workers.empty()) {
    while (more && !workers.full()) {
      DELINK_ASSIGN_OR_RETURN(Batch batch, ReadBatch(reader));
      more = !batch.parts.empty();
      if (more) workers.Push(std::move(batch));
    }
    if (!workers.empty()) DELINK_RETURN_IF_ERROR(Write(workers.Pop()));
  }
  return document_ == scan_.documents.size() ? absl::OkStatus() : Changed();
}

absl::StatusOr<Encoder::Batch> Encoder::ReadBatch(DocumentReader& reader) {
  Batch batch;
  size_t bytes = 0;
  while (bytes < kBatchBytes) {
    DELINK_ASSIGN_OR_RETURN(TextPiece piece, reader.Next());
    if (piece.text.empty()) break;
    bytes += piece.text.size();
    DELINK_RETURN_IF_ERROR(Add(std::move(piece), batch));
  }
  return batch;
}

absl::Status Encoder::Add(TextPiece piece, Batch& batch) {
  if (document_ == scan_.documents.size()) return Changed();
  const DocumentPart& document = scan_.documents[document_];
  if (piece.begins) {
    at_ = 0;
    side_ = document.training > 0 ? 0 : 1;
  }
  const int64_t before_cut = document.training - at_;
  const int64_t size = static_cast<int64_t>(piece.text.size());
  at_ += size;
  if (at_ > document.bytes || piece.ends != (at_ == document.bytes)) {
    return Changed();
  }
  if (piece.ends) ++document_;
  // Only a document that is cut has text on both sides.
  if (side_ == 0 && document.training < document.bytes && before_cut < size) {
    const size_t at =
        CutAt(piece.text, static_cast<size_t>(std::max<int64_t>(before_cut, 0)),
              (document.bytes - document.training) / 4, piece.begins);
    if (at < piece.text.size()) {
      // A part without text ends the document on the training side.
      batch.parts.push_back({.text = piece.text.substr(0, at), .ends = true});
      piece.text.erase(0, at);
      side_ = 1;
    }
  }
  batch.parts.push_back(
      {.text = std::move(piece.text), .side = side_, .ends = piece.ends});
  return absl::OkStatus();
}

absl::Status Encoder::Append(const Part& part, CorpusWriter& side) {
  const int32_t begin = tokenizer_.begin_of_sequence();
  // If both are one token, the end of the previous document is the begin.
  if (begin >= 0 && begin != tokenizer_.end_of_document() &&
      !side.in_document()) {
    DELINK_RETURN_IF_ERROR(side.Append({&begin, 1}, 0));
  }
  return side.Append(part.ids, static_cast<int64_t>(part.text.size()));
}

absl::Status Encoder::Write(const Batch& batch) {
  DELINK_RETURN_IF_ERROR(batch.status);
  for (const Part& part : batch.parts) {
    CorpusWriter& side = *sides_[part.side];
    const int64_t bytes = static_cast<int64_t>(part.text.size());
    if (bytes > 0) DELINK_RETURN_IF_ERROR(Append(part, side));
    if (part.ends) DELINK_RETURN_IF_ERROR(side.EndDocument());
    done_ += bytes;
  }
  reporter_.Set(done_, sides_[0]->tokens() + sides_[1]->tokens());
  return absl::OkStatus();
}

}  // namespace delink
