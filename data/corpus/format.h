// The names within a corpus folder (DIR/train or DIR/validation), format 1.
//
//   index.h5         attributes of "/": kFormat and the statistics below;
//                    /shard_tokens i64 [shards], the tokens of each shard;
//                    /tokens and /documents, virtual: those of all shards;
//                    /tokenizer u8, the serialised tokenizer
//   shard-NNNNN.h5   /tokens u16 (vocabulary <= 65 536) or u32 [tokens];
//                    /documents i64, where documents start, counted from the
//                    first token of the corpus; /tokenizer as above
//   tokenizer.model  the serialised tokenizer as a file, whatever its kind
//   SHA256SUMS       the digests of all these files, written last
//
// A document is the tokens of its text and one end-of-document token. If the
// tokenizer has a begin_of_sequence() that differs from the end, that token
// precedes the text.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace delink::corpus_format {

inline constexpr int64_t kVersion = 1;

inline constexpr char kIndexFile[] = "index.h5";
inline constexpr char kTokenizerFile[] = "tokenizer.model";

inline constexpr char kTokens[] = "/tokens";
inline constexpr char kDocuments[] = "/documents";
inline constexpr char kTokenizer[] = "/tokenizer";
inline constexpr char kShardTokens[] = "/shard_tokens";

// Attributes of "/".
inline constexpr char kKind[] = "kind";  // text: kKindValue
inline constexpr char kKindValue[] = "delink corpus";
inline constexpr char kFormat[] = "format";
inline constexpr char kVocab[] = "vocab";
inline constexpr char kEndOfDocument[] = "end_of_document";
inline constexpr char kTokenizerKind[] = "tokenizer";
inline constexpr char kTokenCount[] = "tokens";
inline constexpr char kDocumentCount[] = "documents";
inline constexpr char kByteCount[] = "bytes";  // of text
inline constexpr char kEntropy[] = "entropy";  // unigram, nats a token
// Tokens of a document, its end included. Corpora of early builds lack these.
inline constexpr char kMedianLength[] = "median_document_tokens";
inline constexpr char kGreatestLength[] = "greatest_document_tokens";
inline constexpr char kDigest[] = "digest";           // of tokens and tokenizer
inline constexpr char kFirstToken[] = "first_token";  // shards only

inline constexpr char kShards[] = "shard";  // the prefix of their names

inline std::string ShardFile(int64_t shard) {
  return absl::StrFormat("%s-%05d.h5", kShards, shard);
}

}  // namespace delink::corpus_format
