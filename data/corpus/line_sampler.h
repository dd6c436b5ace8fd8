// A sample of the lines of some text, to train a tokenizer on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "data/corpus/text_reader.h"
#include "framework/base/rng.h"

namespace delink {

struct TextPart {
  std::string path;
  int64_t bytes = 0;  // its first bytes
};

class LineSampler {
 public:
  // About `sample_bytes` of the lines in `parts`, chosen by a keyed hash of
  // their number. `advanced` is told how many bytes have been read.
  LineSampler(std::vector<TextPart> parts, int64_t sample_bytes, uint64_t seed,
              std::function<void(int64_t)> advanced);

  // The next line of the sample, without its newline, cut to what SentencePiece
  // trains on; false at the end or after an error.
  bool Next(std::string* line);

  const absl::Status& status() const { return status_; }

 private:
  bool NextLine(std::string* line);
  bool FillPiece();

  const std::vector<TextPart> parts_;
  const RngKey key_;
  double keep_ = 1;
  const std::function<void(int64_t)> advanced_;

  size_t part_ = 0;
  int64_t left_ = 0;  // bytes of the part still to be read
  std::optional<TextReader> reader_;
  std::string piece_;
  size_t at_ = 0;
  uint64_t line_number_ = 0;
  int64_t read_ = 0;
  absl::Status status_;
};

}  // namespace delink
