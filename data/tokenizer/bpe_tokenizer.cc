#include "data/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/nfc.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Names of the end of a document, those of plain text first, because files of
// chat models have several.
constexpr std::string_view kEndsOfDocuments[] = {"<|endoftext|>",
                                                 "<|end_of_text|>",
                                                 "<|end▁of▁sentence|>",
                                                 "<｜end▁of▁sentence｜>",
                                                 "</s>",
                                                 "<eos>",
                                                 "[EOS]",
                                                 "<EOS>",
                                                 "<|eos|>",
                                                 "<EOS_TOKEN>"};

// The special token of that name; -1: none.
int32_t Special(const std::vector<TokenizerSpec::Added>& added,
                std::string_view name) {
  for (const TokenizerSpec::Added& token : added) {
    if (token.special && token.content == name) return token.id;
  }
  return -1;
}

// -1: none. `named` is the folder's eos_token.
int32_t EndOfDocument(const std::vector<TokenizerSpec::Added>& added,
                      const std::string& named) {
  int32_t first = -1;
  for (const std::string_view end : kEndsOfDocuments) {
    const int32_t id = Special(added, end);
    if (id >= 0 && (first < 0 || end == named)) first = id;
  }
  return first >= 0 ? first : Special(added, named);
}

// -1: no token precedes a text.
absl::StatusOr<int32_t> BeginOfSequence(const TokenizerSpec& spec,
                                        const SpecialTokens& special,
                                        const std::string& name) {
  if (!special.add_begin.value_or(!spec.in_front.empty())) return -1;
  if (!special.add_begin.has_value() && spec.in_front.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": post_processor puts ", spec.in_front.size(),
                     " tokens in front of a text; one or none is supported"));
  }
  const std::string begin =
      special.add_begin.has_value() ? special.begin : spec.in_front.front();
  const int32_t id = Special(spec.added, begin);
  if (id >= 0) return id;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": puts \"", begin,
                   "\" in front of a text, but that is none of its special "
                   "tokens; fix bos_token of tokenizer_config.json, or set its "
                   "add_bos_token to false"));
}

std::vector<Bpe::Merge> MergesExceptTo(int32_t begin, int32_t end,
                                       std::vector<Bpe::Merge> merges) {
  std::erase_if(merges, [=](const Bpe::Merge& merge) {
    return merge.result == begin || merge.result == end;
  });
  return merges;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::Load(
    std::string bytes, const std::string& name, const SpecialTokens* special) {
  DELINK_ASSIGN_OR_RETURN(TokenizerSpec spec, ParseTokenizerJson(bytes, name));
  Ends ends{
      .end = EndOfDocument(spec.added, special == nullptr ? "" : special->end)};
  if (special != nullptr) {
    DELINK_ASSIGN_OR_RETURN(ends.begin, BeginOfSequence(spec, *special, name));
  }
  // A byte tokenizer's file (huggingface_files.h), given alone. In a file with
  // merges the name has no meaning, because corpora have been built that way.
  if (ends.end < 0 && spec.merges.empty()) {
    ends.end = Special(spec.added, "<|end_of_document|>");
  }
  std::vector<Split> splits;
  for (const TokenizerSpec::Split& split : spec.splits) {
    absl::StatusOr<SplitPattern> pattern =
        split.literal ? SplitPattern::CompileLiteral(split.pattern)
                      : SplitPattern::Compile(split.pattern);
    if (!pattern.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name,
          ": pre_tokenizer Split: ", std::string(pattern.status().message()),
          ", which is not supported: ", split.pattern));
    }
    splits.push_back(
        {.pattern = *std::move(pattern), .keep_rest = split.keep_rest});
  }
  return std::unique_ptr<Tokenizer>(new BpeTokenizer(
      std::move(bytes), std::move(spec), std::move(splits), ends));
}

BpeTokenizer::BpeTokenizer(std::string bytes, TokenizerSpec spec,
                           std::vector<Split> splits, const Ends& ends)
    : serialized_(std::move(bytes)),
      token_bytes_(std::move(spec.tokens)),
      begin_of_sequence_(ends.begin),
      end_of_document_(ends.end),
      nfc_(spec.nfc),
      splits_(std::move(splits)),
      bpe_(spec.byte_ids,
           MergesExceptTo(ends.begin, ends.end, std::move(spec.merges))) {
  if (spec.ignore_merges) {
    for (size_t id = 0; id < token_bytes_.size(); ++id) {
      if (!spec.in_bytes[id] || InNoText(static_cast<int32_t>(id))) continue;
      whole_words_.emplace(token_bytes_[id], static_cast<int32_t>(id));
    }
  }
  TakeAdded(spec.added);
  if (end_of_document_ < 0) {
    end_of_document_ = vocab_size();
    token_bytes_.emplace_back();
  }
}

void BpeTokenizer::TakeAdded(const std::vector<TokenizerSpec::Added>& added) {
  for (const TokenizerSpec::Added& token : added) {
    const size_t id = static_cast<size_t>(token.id);
    if (id >= token_bytes_.size()) token_bytes_.resize(id + 1);
    if (token.special) special_.emplace(token.content, token.id);
    const bool in_no_text = InNoText(token.id);
    token_bytes_[id] = in_no_text ? "" : token.content;
    if (in_no_text) continue;
    if (token.normalized) {
      added_normalized_.Add(nfc_ ? Nfc(token.content) : token.content,
                            token.id);
    } else {
      added_.Add(token.content, token.id);
    }
  }
}

int32_t BpeTokenizer::SpecialToken(std::string_view name) const {
  const auto found = special_.find(absl::string_view(name.data(), name.size()));
  return found == special_.end() ? -1 : found->second;
}

std::string_view BpeTokenizer::TokenBytes(int32_t id) const {
  return At(token_bytes_, id);
}

absl::Status BpeTokenizer::Encode(std::string_view text,
                                  std::vector<int32_t>* ids) const {
  DELINK_RETURN_IF_ERROR(CheckUtf8(text));
  std::unique_ptr<Worker> worker = workers_.Take();
  absl::Status status;
  for (size_t at = 0; at < text.size() && status.ok();) {
    const auto found = added_.Find(text, at);
    const size_t end = found.has_value() ? found->begin : text.size();
    status = EncodePart(text.substr(at, end - at), *worker, ids);
    if (found.has_value()) ids->push_back(found->id);
    at = found.has_value() ? found->end : end;
  }
  workers_.GiveBack(std::move(worker));
  return status;
}

absl::Status BpeTokenizer::EncodePart(std::string_view text, Worker& worker,
                                      std::vector<int32_t>* ids) const {
  if (!nfc_) return EncodeNormalized(text, worker, ids);
  return EncodeNormalized(Nfc(text), worker, ids);
}

absl::Status BpeTokenizer::EncodeNormalized(std::string_view text,
                                            Worker& worker,
                                            std::vector<int32_t>* ids) const {
  for (size_t at = 0; at < text.size();) {
    const auto found = added_normalized_.Find(text, at);
    const size_t end = found.has_value() ? found->begin : text.size();
    DELINK_RETURN_IF_ERROR(
        EncodeWords(text.substr(at, end - at), 0, worker, ids));
    if (found.has_value()) ids->push_back(found->id);
    at = found.has_value() ? found->end : end;
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::EncodeWords(std::string_view text, size_t split,
                                       Worker& worker,
                                       std::vector<int32_t>* ids) const {
  if (text.empty()) return absl::OkStatus();
  if (split == splits_.size()) {
    EncodeWord(text, worker, ids);
    return absl::OkStatus();
  }
  for (size_t at = 0; at < text.size();) {
    DELINK_ASSIGN_OR_RETURN(
        const std::optional<SplitPattern::Range> word,
        splits_[split].pattern.Find(text, at, worker.matcher));
    const size_t begin = word.has_value() ? word->begin : text.size();
    if (splits_[split].keep_rest) {
      DELINK_RETURN_IF_ERROR(
          EncodeWords(text.substr(at, begin - at), split + 1, worker, ids));
    }
    at = word.has_value() ? word->end : begin;
    DELINK_RETURN_IF_ERROR(
        EncodeWords(text.substr(begin, at - begin), split + 1, worker, ids));
  }
  return absl::OkStatus();
}

void BpeTokenizer::EncodeWord(std::string_view word, Worker& worker,
                              std::vector<int32_t>* ids) const {
  if (worker.words.Append(word, ids)) return;
  const size_t before = ids->size();
  const auto whole =
      whole_words_.find(absl::string_view(word.data(), word.size()));
  if (whole != whole_words_.end()) {
    ids->push_back(whole->second);
  } else {
    bpe_.Encode(word, worker.scratch, ids);
  }
  worker.words.Add(word, std::span(*ids).subspan(before));
}

}  // namespace delink
