// A tokenizer as a folder of Hugging Face has it.
//
// One that came from such a folder goes out as it came, file by file. A
// tokenizer.json or .model that was given alone goes out as it is, but without
// a post_processor that puts tokens in front of a text, and with a
// tokenizer_config.json that says what ends a document and that nothing goes in
// front; bytes become a tokenizer.json of 257 tokens. A unigram model as
// `--train-tokenizer` makes it goes out as a tokenizer.json besides, whose ids
// are the same but for the order of pieces where two ways to cut are equally
// likely (runs of spaces), and where a text has the name of a control token. Of
// ids alone nobody knows the text, and so there are no files.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/tokenizer/tokenizer.h"

namespace delink {

struct HuggingFaceTokenizer {
  std::map<std::string, std::string> files;  // by name; none: nothing to write
  // bos_token_id and eos_token_id, for config.json and generation_config.json;
  // -1: none.
  int32_t begin = -1;
  int32_t end = -1;
};

HuggingFaceTokenizer ForHuggingFace(const Tokenizer& tokenizer);

}  // namespace delink
