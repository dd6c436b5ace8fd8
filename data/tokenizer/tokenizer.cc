#include "data/tokenizer/tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "data/tokenizer/folder_tokenizer.h"
#include "data/tokenizer/ids_tokenizer.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(
    std::string_view text) const {
  std::vector<int32_t> ids;
  DELINK_RETURN_IF_ERROR(Encode(text, &ids));
  return ids;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeDocument(
    std::string_view text) const {
  std::vector<int32_t> ids;
  if (begin_of_sequence() >= 0) ids.push_back(begin_of_sequence());
  DELINK_RETURN_IF_ERROR(Encode(text, &ids));
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += TokenBytes(id);
  return text;
}

std::unique_ptr<Tokenizer> MakeByteTokenizer() {
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> MakeIdsTokenizer(int32_t vocab,
                                            int32_t end_of_document) {
  return std::make_unique<IdsTokenizer>(vocab, end_of_document);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    std::string_view bytes, const std::string& name) {
  if (bytes == ByteTokenizer::kSerialized) return MakeByteTokenizer();
  if (auto ids = IdsTokenizer::Load(bytes)) return ids;
  if (IsPacked(bytes)) {
    DELINK_ASSIGN_OR_RETURN(TokenizerFiles files, UnpackFiles(bytes, name));
    return FolderTokenizer::Load(std::move(files), name);
  }
  if (LooksLikeJson(bytes)) return BpeTokenizer::Load(std::string(bytes), name);
  return SentencePieceTokenizer::Load(std::string(bytes), name);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerFile(
    const std::string& path) {
  if (IsDirectory(path)) return LoadTokenizerFolder(path);
  DELINK_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return LoadTokenizer(bytes, path);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerFolder(
    const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(TokenizerFiles files, ReadTokenizerFiles(path));
  return FolderTokenizer::Load(std::move(files), path);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TrainTokenizer(
    const TokenizerTraining& options,
    const std::function<bool(std::string*)>& next) {
  return SentencePieceTokenizer::Train(options, next);
}

std::string StreamDecoder::Push(int32_t id) {
  pending_ += tokenizer_.TokenBytes(id);
  std::string out;
  while (true) {
    const Utf8Scan scan = ScanUtf8(pending_);
    out += pending_.substr(0, scan.valid);
    pending_.erase(0, scan.valid);
    if (pending_.empty() || scan.incomplete) return out;
    out += ReplaceInvalidUtf8(pending_.substr(0, 1));
    pending_.erase(0, 1);
  }
}

std::string StreamDecoder::Finish() {
  return ReplaceInvalidUtf8(std::exchange(pending_, ""));
}

}  // namespace delink
