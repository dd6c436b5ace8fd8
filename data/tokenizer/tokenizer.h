// Text to token ids and back.
//
// Immutable and thread-safe. Ids are [0, vocab_size()). One id marks the end of
// a document; text never encodes to it and it decodes to nothing. Tokenizers
// made here round-trip every UTF-8 text exactly. A SentencePiece model or a
// tokenizer.json made elsewhere does so only if its normalisation does. "ids"
// encodes ids alone (ids_tokenizer.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // "bytes", "sentencepiece", "byte-level BPE" or "ids".
  virtual const char* kind() const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t end_of_document() const = 0;

  // The token that precedes the text of each document, if the folder of the
  // tokenizer asks for one; -1: none. Text never encodes to it, and it decodes
  // to nothing. If it equals end_of_document(), a corpus has it only at the end
  // of each document.
  virtual int32_t begin_of_sequence() const { return -1; }
  // The token to put before a text that nothing precedes: the begin of sequence
  // if the tokenizer knows one, even if documents do not get it, else the end
  // of a document.
  virtual int32_t prefix_token() const { return end_of_document(); }
  // Whether generation ends with `id`: the end of a document, or eos_token of
  // the tokenizer's folder, which can end a turn of a chat.
  virtual bool EndsText(int32_t id) const { return id == end_of_document(); }
  // The special token of that name, such as "</s>"; -1: none.
  virtual int32_t SpecialToken(std::string_view) const { return -1; }

  // Appends the ids of `text`. InvalidArgument if the tokenizer cannot take it;
  // SentencePiece and BPE name the first byte that is not UTF-8.
  virtual absl::Status Encode(std::string_view text,
                              std::vector<int32_t>* ids) const = 0;

  // The bytes a token stands for; none for the end of a document and other
  // control tokens. A character may be spread over several tokens.
  virtual std::string_view TokenBytes(int32_t id) const = 0;

  // Bytes for LoadTokenizer, such as a plain .model or tokenizer.json file, or
  // the files of a folder (tokenizer_files.h).
  virtual const std::string& Serialize() const = 0;

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const;
  // The ids of a text that begins a document, after begin_of_sequence() if any.
  absl::StatusOr<std::vector<int32_t>> EncodeDocument(
      std::string_view text) const;
  std::string Decode(std::span<const int32_t> ids) const;
};

// 257 ids: the 256 bytes and the end of a document. Encodes any bytes.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

// `vocab` ids without known text; 0 <= end_of_document < vocab.
std::unique_ptr<Tokenizer> MakeIdsTokenizer(int32_t vocab,
                                            int32_t end_of_document);

// Loads the bytes of Serialize, of a SentencePiece .model file or of a
// tokenizer.json (tokenizer_json.h lists the supported kinds). Messages call
// them `name`.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    std::string_view bytes, const std::string& name);
// Loads a file, or a Hugging Face folder as LoadTokenizerFolder does.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerFile(
    const std::string& path);
// Loads tokenizer.json of a folder, or tokenizer.model if the former is missing
// or not supported. tokenizer_config.json and special_tokens_map.json decide
// the tokens around a text (folder_tokenizer.h). Serialize returns all files.
// NotFound if the folder has no tokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerFolder(
    const std::string& path);

struct TokenizerTraining {
  int32_t vocab = 0;  // ids in all, the 256 bytes and 3 others included
};

// Trains a SentencePiece unigram model on the lines that `next` gives (it
// returns false after the last); lines hold no newline. The same lines give the
// same model. All lines are held in memory: give a sample of a large corpus.
absl::StatusOr<std::unique_ptr<Tokenizer>> TrainTokenizer(
    const TokenizerTraining& options,
    const std::function<bool(std::string*)>& next);

// Decodes ids as they are generated, into whole characters. Bytes that can no
// longer become a character are replaced by U+FFFD.
class StreamDecoder {
 public:
  // `tokenizer` outlives the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text that `id` completes, possibly none.
  std::string Push(int32_t id);

  // The rest, at the end.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace delink
