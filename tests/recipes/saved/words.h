// A tokenizer whose ids a test can tell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "data/tokenizer/tokenizer.h"

namespace delink::testing {

// Words of letters; a space belongs to the word after it, and "un" at the end
// of a text is a token of its own, but is joined with "do" behind it.
class Words final : public Tokenizer {
 public:
  using Tokenizer::Encode;
  const char* kind() const override { return "words"; }
  int32_t vocab_size() const override { return 1000; }
  int32_t end_of_document() const override { return 999; }
  int32_t begin_of_sequence() const override { return begin; }
  int32_t prefix_token() const override {
    return begin < 0 ? end_of_document() : begin;
  }
  absl::Status Encode(std::string_view text,
                      std::vector<int32_t>* ids) const override {
    for (size_t i = 0; i < text.size();) {
      size_t end = text.find_first_of(" \n", i + 1);
      end = std::min(end, text.size());
      ids->push_back(IdOf(text.substr(i, end - i)));
      i = end;
    }
    return absl::OkStatus();
  }
  std::string_view TokenBytes(int32_t) const override { return ""; }
  const std::string& Serialize() const override { return none_; }

  int32_t begin = -1;

  static int32_t IdOf(std::string_view word) {
    int32_t id = 0;
    for (const char c : word) id = (id * 31 + c) % 991;
    return id;
  }

 private:
  std::string none_;
};

}  // namespace delink::testing
