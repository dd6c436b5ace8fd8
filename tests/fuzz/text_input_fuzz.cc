// A file of text or JSONL, plain, gzip or zstd: the first byte of the input
// says which of the two, and whether the rest is compressed before it is read
// (what is broken then is the text) or is what the file holds.
#include "data/corpus/document_reader.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/file.h"
#include "tests/data/text_samples.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/temp_dir.h"

namespace delink::fuzz {
namespace {

// Text, JSONL; then both gzipped, both zstd.
constexpr std::string_view kForms = "012345";

void ReadAll(const std::string& path, bool jsonl) {
  const auto reader = ReadAllDocuments({{path, "input", jsonl}}, "text");
  bool inside = false;
  while (true) {
    const auto piece = reader->Next();
    MustSay(piece.status());
    if (!piece.ok()) {
      const std::string message(piece.status().message());
      DELINK_CHECK(message.find("input") != message.npos) << message;
      return;
    }
    if (piece->text.empty()) break;
    DELINK_CHECK(piece->begins == !inside);
    DELINK_CHECK(piece->text.size() <= kPieceBytes);
    DELINK_CHECK(CheckUtf8(piece->text).ok());
    inside = !piece->ends;
  }
  DELINK_CHECK(!inside);
}

}  // namespace

std::vector<std::string> Seeds() {
  using namespace testing;  // NOLINT: a list of what is there
  const std::string text = SampleText(1, 700);
  const std::string lines =
      JsonLine(SampleText(2, 200)) + "\n" + JsonLine("") +
      JsonLine("a \"b\" \\ \x01 é 😀") +
      R"({"a": [1, -2.5e3, {"text": [[]]}], "text": "b"})";
  std::vector<std::string> seeds;
  for (const char form : kForms) {
    seeds.push_back(form + text);
    seeds.push_back(form + lines);
  }
  for (const char form : kForms.substr(0, 2)) {
    for (const std::string& stored : {text, lines}) {
      seeds.push_back(form + Gzipped(stored));
      seeds.push_back(form + Zstandard(stored));
      seeds.push_back(form + Gzipped(stored) + Gzipped("more"));
    }
  }
  return seeds;
}

std::vector<std::string> Words() {
  return WordsOf(
      "\"text\": |\"text\"|{|}|[|]|\\ud800|\\u0000|\\|\"|\n|\r\n|null|true|"
      "1e999|-0|0x1|//|\xFF\xFE|\xEF\xBB\xBF|\xED\xA0\x80|\xF4\x90\x80\x80|"
      "\x1F\x8B\x08|\x28\xB5\x2F\xFD|\x50\x2A\x4D\x18",
      {std::string(5, '\0')});
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::TempDir dir;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  const size_t form = data[0] % kForms.size();
  const std::string path = dir / "input";
  const bool gzip = form / 2 == 1, zstd = form / 2 == 2;
  testing::WriteOrDie(path, gzip   ? testing::Gzipped(rest)
                            : zstd ? testing::Zstandard(rest)
                                   : std::string(rest));
  ReadAll(path, form % 2 == 1);
  return 0;
}

}  // namespace delink::fuzz
