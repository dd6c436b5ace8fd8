// Wraps SentencePiece in standard types, because its header and Abseil's cannot
// be in one translation unit. Functions return an error text, empty on success.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace delink::sentencepiece_bridge {

enum class PieceKind { kText, kByte, kUnknown, kControl };

struct Piece {
  PieceKind kind = PieceKind::kText;
  std::string text;  // as the model has it: spaces as U+2581, bytes as <0xAB>
  float score = 0;   // of a unigram model its log-probability
};

class Model {
 public:
  virtual ~Model() = default;
  virtual std::vector<Piece> Pieces() const = 0;
  virtual int32_t end_of_sentence() const = 0;  // -1: none
  virtual std::string Encode(std::string_view text,
                             std::vector<int>* ids) const = 0;
};

std::string Load(std::string_view bytes, std::unique_ptr<Model>* model);

struct Training {
  int vocab = 0;
  int seed_pieces = 0;            // candidates to start from
  double character_coverage = 1;  // share of characters that get a piece
};

// With the library's own arguments.
using Arguments = std::map<std::string, std::string>;
std::string Train(const Arguments& arguments,
                  const std::vector<std::string>& lines, std::string* model);

// Unigram, identity normalisation, no dummy prefix, spaces kept, byte fallback,
// "\n" a symbol; <unk> is 0 and </s> is 1.
std::string Train(const Training& options,
                  const std::vector<std::string>& lines, std::string* model);

}  // namespace delink::sentencepiece_bridge
