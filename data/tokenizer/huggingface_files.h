// Converts a tokenizer to the files of a Hugging Face folder.
//
// A tokenizer from such a folder keeps its files unchanged. A tokenizer.json or
// .model that was given alone is unchanged too, except that a post_processor
// that puts tokens in front of a text is removed. It gets a
// tokenizer_config.json that names the end of a document and puts nothing in
// front. Bytes become a tokenizer.json of 257 tokens. A unigram model as
// `--train-tokenizer` makes it gets a tokenizer.json as well. Its ids are the
// same, except for the order of pieces if two ways to cut are equally likely
// (runs of spaces), and except if a text has the name of a control token. A
// tokenizer of ids alone has no known text and therefore no files.
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
