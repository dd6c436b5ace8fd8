#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

using sentencepiece_bridge::PieceKind;

constexpr char kMarker[] = "\xE2\x96\x81";  // U+2581

// <unk>, </s>, newline, and the bytes.
constexpr int32_t kSmallestVocab = 3 + 256;

// Candidates that training starts from. SentencePiece's default of a million
// takes several times as long and gives no better vocabulary.
constexpr int32_t kSeedsPerToken = 10;
constexpr int32_t kFewestSeeds = 20'000;

// If a folder names no class, transformers treats a .model as Llama's, which
// puts this token in front of a text.
constexpr char kLlamasBegin[] = "<s>";
bool AddsBegin(const std::string& tokenizer_class) {
  return tokenizer_class.empty() || tokenizer_class.starts_with("Llama") ||
         tokenizer_class.starts_with("Gemma");
}

// The byte of "<0xAB>"; -1 if the text is no byte.
int ByteOf(const std::string& piece) {
  uint32_t value = 0;
  if (piece.size() != 6 || !absl::SimpleHexAtoi(piece.substr(1, 4), &value) ||
      value > 255) {
    return -1;
  }
  return static_cast<int>(value);
}

// The share of all characters that the `most` commonest make up, at most
// SentencePiece's default. The others are spelt in bytes: text in many scripts
// has thousands of rare characters, which would crowd a small vocabulary.
double CoverageOf(const std::vector<std::string>& lines, size_t most) {
  std::unordered_map<std::string_view, int64_t> counts;
  int64_t total = 0;
  for (const std::string& line : lines) {
    for (size_t begin = 0; begin < line.size(); ++total) {
      size_t end = begin + 1;
      while (end < line.size() && CharacterBoundary(line, end) != end) ++end;
      ++counts[std::string_view(line).substr(begin, end - begin)];
      begin = end;
    }
  }
  std::vector<int64_t> sorted;
  for (const auto& [character, count] : counts) sorted.push_back(count);
  std::sort(sorted.rbegin(), sorted.rend());
  sorted.resize(std::min(sorted.size(), most));
  const double covered = static_cast<double>(
      std::accumulate(sorted.begin(), sorted.end(), int64_t{0}));
  // The library stops at the first character that reaches the share.
  // It takes no share below 0.98.
  return std::clamp((covered - 0.5) / static_cast<double>(total), 0.98, 0.9995);
}

// SentencePiece's message without its "Internal: FILE(LINE) [CONDITION] ".
std::string Plain(const std::string& error) {
  const size_t bracket = error.rfind("] ");
  std::string plain =
      bracket == std::string::npos ? error : error.substr(bracket + 2);
  while (!plain.empty() && (plain.back() == '.' || plain.back() == ' ')) {
    plain.pop_back();
  }
  return plain.empty() ? error : plain;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Load(
    std::string bytes, const std::string& name, const SpecialTokens* special) {
  auto tokenizer =
      std::unique_ptr<SentencePieceTokenizer>(new SentencePieceTokenizer());
  // An empty model is parsed without an error, but aborts later.
  const std::string error =
      bytes.empty() ? "the file is empty"
                    : sentencepiece_bridge::Load(bytes, &tokenizer->model_);
  if (!error.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": not a tokenizer: ", error,
        "; give a SentencePiece .model file or a tokenizer.json, or train one "
        "with --train-tokenizer"));
  }
  tokenizer->serialized_ = std::move(bytes);
  DELINK_RETURN_IF_ERROR(tokenizer->ReadPieces(name));
  tokenizer->FindEnd(special == nullptr ? "" : special->end);
  if (special != nullptr) {
    DELINK_RETURN_IF_ERROR(tokenizer->FindBegin(*special, name));
  }
  return tokenizer;
}

absl::Status SentencePieceTokenizer::ReadPieces(const std::string& name) {
  const auto pieces = model_->Pieces();
  if (pieces.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": the tokenizer has no tokens; give another .model file"));
  }
  std::array<int32_t, 256> byte_ids;
  byte_ids.fill(-1);
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::string bytes;
    switch (pieces[i].kind) {
      case PieceKind::kText:
        bytes = absl::StrReplaceAll(pieces[i].text, {{kMarker, " "}});
        break;
      case PieceKind::kByte: {
        const int byte = ByteOf(pieces[i].text);
        if (byte < 0) break;
        bytes = std::string(1, static_cast<char>(byte));
        At(byte_ids, byte) = static_cast<int32_t>(i);
        break;
      }
      case PieceKind::kUnknown:
        bytes = "\xEF\xBF\xBD";
        break;
      case PieceKind::kControl:
        special_.emplace(pieces[i].text, static_cast<int32_t>(i));
        break;
    }
    token_bytes_.push_back(std::move(bytes));
  }
  for (const char c : std::string_view(kMarker)) {
    const int32_t id = byte_ids[static_cast<unsigned char>(c)];
    if (id >= 0) marker_ids_.push_back(id);
  }
  if (marker_ids_.size() != sizeof(kMarker) - 1) marker_ids_.clear();
  if (IsPlain()) cuts_ = FindWordCuts(token_bytes_);
  return absl::OkStatus();
}

void SentencePieceTokenizer::FindEnd(const std::string& named) {
  end_of_document_ = model_->end_of_sentence();
  if (end_of_document_ < 0) end_of_document_ = SpecialToken(named);
  if (end_of_document_ >= 0) return;
  end_of_document_ = static_cast<int32_t>(token_bytes_.size());
  token_bytes_.emplace_back();
}

absl::Status SentencePieceTokenizer::FindBegin(const SpecialTokens& special,
                                               const std::string& name) {
  const bool asked = special.add_begin.has_value();
  if (!special.add_begin.value_or(AddsBegin(special.tokenizer_class))) {
    return absl::OkStatus();
  }
  begin_of_sequence_ =
      SpecialToken(special.begin.empty() ? kLlamasBegin : special.begin);
  if (begin_of_sequence_ >= 0 || !asked) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": puts \"", special.begin,
                   "\" in front of a text, but that is none of its control "
                   "tokens; fix bos_token of tokenizer_config.json, or set its "
                   "add_bos_token to false"));
}

int32_t SentencePieceTokenizer::SpecialToken(std::string_view name) const {
  const auto found = special_.find(absl::string_view(name.data(), name.size()));
  return found == special_.end() ? -1 : found->second;
}

bool SentencePieceTokenizer::IsPlain() const {
  constexpr char kText[] = " a  b\n c ";
  std::vector<int32_t> ids;
  return EncodeWhole(kText, &ids).ok() && Decode(ids) == kText;
}

absl::Status SentencePieceTokenizer::EncodePart(
    std::string_view text, std::vector<int32_t>* ids) const {
  if (text.empty()) return absl::OkStatus();
  if (!cuts_.any()) return EncodeWhole(text, ids);
  std::unique_ptr<WordCache> cache = caches_.Take();
  const absl::Status status = EncodeWords(text, *cache, ids);
  caches_.GiveBack(std::move(cache));
  return status;
}

absl::Status SentencePieceTokenizer::EncodeWords(
    std::string_view text, WordCache& cache, std::vector<int32_t>* ids) const {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = cuts_.End(text, begin);
    const std::string_view word = text.substr(begin, end - begin);
    begin = end;
    if (cache.Append(word, ids)) continue;
    const size_t before = ids->size();
    DELINK_RETURN_IF_ERROR(EncodeWhole(word, ids));
    cache.Add(word, std::span(*ids).subspan(before));
  }
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::EncodeWhole(
    std::string_view text, std::vector<int32_t>* ids) const {
  std::vector<int> part;
  const std::string error = model_->Encode(text, &part);
  if (!error.empty()) {
    return absl::InternalError(absl::StrCat("SentencePiece: ", error));
  }
  ids->insert(ids->end(), part.begin(), part.end());
  return absl::OkStatus();
}

absl::Status SentencePieceTokenizer::Encode(std::string_view text,
                                            std::vector<int32_t>* ids) const {
  DELINK_RETURN_IF_ERROR(CheckUtf8(text));
  while (!marker_ids_.empty()) {
    const size_t marker = text.find(kMarker);
    if (marker == std::string_view::npos) break;
    DELINK_RETURN_IF_ERROR(EncodePart(text.substr(0, marker), ids));
    ids->insert(ids->end(), marker_ids_.begin(), marker_ids_.end());
    text.remove_prefix(marker + sizeof(kMarker) - 1);
  }
  return EncodePart(text, ids);
}

std::string_view SentencePieceTokenizer::TokenBytes(int32_t id) const {
  return At(token_bytes_, id);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Train(
    const TokenizerTraining& options,
    const std::function<bool(std::string*)>& next) {
  if (options.vocab < kSmallestVocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("--train-tokenizer ", options.vocab,
                     ": a vocabulary needs more than ", kSmallestVocab,
                     " tokens (256 bytes, 3 others, and the characters of the "
                     "text); ask for more, or use --bytes"));
  }
  std::vector<std::string> lines;
  for (std::string line; next(&line);) lines.push_back(line);
  if (lines.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--train-tokenizer ", options.vocab,
                     ": there is no text to train on; give more text"));
  }
  std::string model;
  const std::string error = sentencepiece_bridge::Train(
      {.vocab = options.vocab,
       .seed_pieces = std::max(kFewestSeeds, kSeedsPerToken * options.vocab),
       .character_coverage = CoverageOf(
           lines, static_cast<size_t>(options.vocab - kSmallestVocab) / 4)},
      lines, &model);
  if (!error.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--train-tokenizer ", options.vocab,
        ": SentencePiece cannot train: ", Plain(error),
        "; choose another size of vocabulary, give more text, or use --bytes"));
  }
  return Load(std::move(model), "the trained tokenizer");
}

}  // namespace delink
