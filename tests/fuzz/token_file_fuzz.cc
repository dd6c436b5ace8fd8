// Token files: the first byte of the input says which format is asked for and
// whether an index lies beside it; of a Megatron pair the second says how much
// of the rest is the index.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/import/layout.h"
#include "data/import/token_reader.h"
#include "tests/data/text_samples.h"
#include "tests/data/token_files.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/temp_dir.h"

namespace delink::fuzz {
namespace {

using testing::Numbers;

constexpr int32_t kVocab = 300;

// By content, with an index, rows of an array, raw of two types.
constexpr std::string_view kForms = "01234";

void ReadAll(const std::string& path, const LayoutOptions& options) {
  const auto layout = ReadLayout(path, options);
  MustSay(layout.status());
  if (!layout.ok()) return;
  const std::vector<TokenLayout> layouts = {*layout};
  TokenReader reader(layouts, {.vocab = kVocab, .end_of_document = 0});
  bool inside = false;
  while (true) {
    const auto run = reader.Next();
    MustSay(run.status());
    if (!run.ok()) return;
    if (run->ids.empty() && !run->ends) break;
    DELINK_CHECK(run->begins == !inside);
    inside = !run->ends;
    for (const int32_t id : run->ids) DELINK_CHECK(0 < id && id < kVocab);
  }
  DELINK_CHECK(!inside);
}

std::string Pair(const testing::Documents& documents) {
  const std::string index = testing::MegatronIndex(documents, 8, 2);
  return absl::StrCat("1", std::string(1, static_cast<char>(index.size())),
                      index, Numbers<uint16_t>(testing::Joined(documents)));
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string u16 = Numbers<uint16_t>({1, 2, 0, 3, 4, 0});
  const std::string u32 = Numbers<uint32_t>({1, 2, 0, 3, 4, 0});
  return {Pair({{1, 2, 0}, {3}, {4, 5}}),
          absl::StrCat("0", testing::LlmCHeader(20240520, 1, 6), u16),
          absl::StrCat("0", testing::LlmCHeader(20240801, 7, 6), u32),
          absl::StrCat("0", testing::NumpyHeader("<u2", "(6,)"), u16),
          absl::StrCat("2", testing::NumpyHeader("<u4", "(3, 2)"), u32),
          absl::StrCat("3", u16),
          absl::StrCat("4", u32)};
}

std::vector<std::string> Words() {
  return WordsOf(
      "MMIDIDX|\x93NUMPY|'descr': |'shape': (|'fortran_order': "
      "True|'<i8'|'<f4'|"
      "(9223372036854775807, 2)|,)",
      {std::string(8, '\0'), std::string(8, '\xFF'),
       std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 8)});
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::TempDir dir;
  if (size < 2) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t form = data[0] % kForms.size();
  const std::string path = dir / (form == 1 ? "pair.bin" : "input");
  if (form == 1) {
    const size_t index =
        std::min<size_t>(static_cast<unsigned char>(rest[0]), rest.size() - 1);
    testing::WriteOrDie(dir / "pair.idx", rest.substr(1, index));
    rest.remove_prefix(1 + index);
  }
  testing::WriteOrDie(path, rest);
  LayoutOptions options = {.rows = form == 2};
  if (form >= 3) options = {.format = TokenFormat::kRaw};
  if (form >= 3) options.dtype = form == 3 ? "u16" : "i32";
  ReadAll(path, options);
  return 0;
}

}  // namespace delink::fuzz
