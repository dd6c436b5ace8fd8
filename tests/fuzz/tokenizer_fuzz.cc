// A tokenizer.json; one that is taken must encode text to ids of its vocabulary
// other than the end of a document, or say why not.
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_tokenizer.h"
#include "tests/data/text_samples.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/source_path.h"

namespace delink::fuzz {

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const char* name : {"gpt2", "llama3", "qwen", "sequence"}) {
    seeds.push_back(testing::ReadOrDie(
        testing::SourcePath("tests/data/tokenizers/") + name + ".json"));
  }
  return seeds;
}

std::vector<std::string> Words() {
  return WordsOf(
      R"(null|true|false|[]|{}|"NFC"|"Split"|"Digits"|"ByteLevel"|"Regex"|)"
      R"("String"|"type"|"Removed"|"invert"|\\p{L}|\\s|(?!|[^|{1,3}|{99999}|)"
      R"(((a+)+)+$|-1|16777216)");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tokenizer = BpeTokenizer::Load(
      std::string(reinterpret_cast<const char*>(data), size), "input");
  MustSay(tokenizer.status());
  if (!tokenizer.ok()) return 0;
  const std::string text =
      "It's 1234 a\xCC\x81 caf\xC3\xA9  \n\n\xE4\xB8\x80\xE3\x81\x82 x::y "
      "<|im_start|>\xF0\x9F\x98\x80 aaaaaaaaaaaaaaaaaaaaaaaa!";
  std::vector<int32_t> ids;
  const absl::Status status = (*tokenizer)->Encode(text, &ids);
  MustSay(status);
  for (const int32_t id : ids) {
    DELINK_CHECK(0 <= id && id < (*tokenizer)->vocab_size()) << id;
    DELINK_CHECK(id != (*tokenizer)->end_of_document());
  }
  return 0;
}

}  // namespace delink::fuzz
