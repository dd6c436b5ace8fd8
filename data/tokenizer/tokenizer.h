// Text to token ids and back.
//
// Immutable and thread-safe. Ids are [0, vocab_size()). One id marks the end of
// a document; text never encodes to it and it decodes to nothing. Tokenizers
// made here round-trip every UTF-8 text exactly; a SentencePiece model or a
// tokenizer.json made elsewhere does so only as far as its own normalisation
// does. "ids" takes no other text than ids (ids_tokenizer.h).
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

  // What goes in front of the text of each document, where the folder that the
  // tokenizer comes from asks for it; -1: nothing does. Text never encodes to
  // it then, and it decodes to nothing. It may be end_of_document() as well,
  // and is then in a corpus as that alone.
  virtual int32_t begin_of_sequence() const { return -1; }
  // What a text follows that follows nothing: the begin of a sequence where the
  // tokenizer knows one, though it may put none in front, else the end of a
  // document.
  virtual int32_t prefix_token() const { return end_of_document(); }
  // Whether a model that gives it has ended: the end of a document, or what the
  // folder that the tokenizer comes from calls eos_token, as a chat's turns
  // end.
  virtual bool EndsText(int32_t id) const { return id == end_of_document(); }
  // The token of that name, as "</s>"; -1 where no special one is called so.
  virtual int32_t SpecialToken(std::string_view) const { return -1; }

  // Appends the ids of `text`. InvalidArgument, naming the byte, when `text`
  // is not what the tokenizer takes (SentencePiece and BPE: UTF-8).
  virtual absl::Status Encode(std::string_view text,
                              std::vector<int32_t>* ids) const = 0;

  // The bytes a token stands for; none for the end of a document and other
  // control tokens. A character may be spread over several tokens.
  virtual std::string_view TokenBytes(int32_t id) const = 0;

  // What LoadTokenizer takes: the plain .model or tokenizer.json file, or the
  // files of a folder (tokenizer_files.h).
  virtual const std::string& Serialize() const = 0;

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text) const;
  // Of a text as a document begins: begin_of_sequence() first.
  absl::StatusOr<std::vector<int32_t>> EncodeDocument(
      std::string_view text) const;
  std::string Decode(std::span<const int32_t> ids) const;
};

// 256 bytes and the end of a document: 257 ids, any bytes at all.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

// `vocab` ids of which nothing else is known; 0 <= end_of_document < vocab.
std::unique_ptr<Tokenizer> MakeIdsTokenizer(int32_t vocab,
                                            int32_t end_of_document);

// From Serialize's bytes, or those of a SentencePiece .model file or of a
// tokenizer.json (tokenizer_json.h says of which kinds). `name` says in
// messages where they come from.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    std::string_view bytes, const std::string& name);
// Of a file; of a folder of Hugging Face what LoadTokenizerFolder gives.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerFile(
    const std::string& path);
// Of a folder with tokenizer.json, or with tokenizer.model where that is
// missing or of a kind that is not supported. What its tokenizer_config.json
// and special_tokens_map.json say of the begin and the end of a text holds
// (folder_tokenizer.h). Serialize has all files. NotFound: no tokenizer there.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerFolder(
    const std::string& path);

struct TokenizerTraining {
  int32_t vocab = 0;  // ids in all, the 256 bytes and 3 others included
};

// Trains a SentencePiece unigram model on the lines that `next` hands out (it
// returns false after the last); lines hold no newline. The same lines give the
// same model. Lines are held in memory: hand out a sample of a large corpus.
absl::StatusOr<std::unique_ptr<Tokenizer>> TrainTokenizer(
    const TokenizerTraining& options,
    const std::function<bool(std::string*)>& next);

// Decodes ids as they are generated: only whole characters come out, and what
// can no longer become one comes out as U+FFFD.
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
