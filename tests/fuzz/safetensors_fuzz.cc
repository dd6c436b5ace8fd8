// Safetensors: the first byte of the input says what the rest is. A file as it
// is; a header, in front of as many data as the second byte says; or the index
// of a folder with two good shards.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/safetensors/file.h"
#include "framework/safetensors/folder.h"
#include "tests/data/text_samples.h"
#include "tests/framework/safetensors/crafted.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/temp_dir.h"

namespace delink::fuzz {
namespace {

using safetensors::Entry;
using safetensors::File;
using safetensors::Folder;
using testing::SafetensorsBytes;

constexpr char kHeader[] =
    R"({"__metadata__":{"format":"pt"},)"
    R"("a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
    R"("c":{"dtype":"F16","shape":[],"data_offsets":[22,24]}} )";
constexpr size_t kData = 24;

constexpr char kIndex[] =
    R"({"metadata":{"total_size":2},)"
    R"("weight_map":{"a":"1.safetensors","b":"2.safetensors"}})";

std::string OneByte(std::string_view name) {
  return SafetensorsBytes(
      absl::StrCat("{\"", std::string(name),
                   R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})"),
      "x");
}

// Into memory of just the size that an entry says, so that one byte more is
// seen. What is open has no more bytes than its file.
void ReadEntry(const File& file, const Entry& entry, size_t input) {
  const int64_t bytes = entry.end - entry.begin;
  DELINK_CHECK(0 <= bytes && bytes <= static_cast<int64_t>(input));
  const auto count = static_cast<size_t>(entry.count());
  std::vector<char> raw(static_cast<size_t>(bytes));
  DELINK_CHECK(file.ReadBytes(entry, 0, entry.count(), raw.data()).ok());
  std::vector<float> values(count);
  const absl::Status read = file.Read(entry, 0, entry.count(), values.data());
  DELINK_CHECK(read.ok() == HasValues(entry.type));
  MustSay(read);
}

void ReadAll(const std::string& path, size_t input) {
  const auto file = File::Open(path);
  MustSay(file.status());
  if (!file.ok()) return;
  int64_t end = 0;
  for (const Entry& entry : file->entries()) {
    DELINK_CHECK(entry.begin == end);
    end = entry.end;
    ReadEntry(*file, entry, input);
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  const std::string data(kData, '\x3C');
  const std::string counted(1, static_cast<char>(kData));
  return {absl::StrCat("0", SafetensorsBytes(kHeader, data)),
          absl::StrCat("0", SafetensorsBytes("{}", "")),
          absl::StrCat("1", counted, kHeader),
          absl::StrCat("1", std::string(1, '\x04'),
                       R"({"x":{"dtype":"F32","shape":[1],)"
                       R"("data_offsets":[0,4]}})"),
          absl::StrCat("2", kIndex)};
}

std::vector<std::string> Words() {
  return WordsOf(
      R"("dtype":|"shape":|"data_offsets":|"__metadata__":|"weight_map":|)"
      R"("2.safetensors"|"F32"|"F64"|"BOOL"|"F8_E4M3"|"F4"|[0,4]|[4,16]|)"
      R"([16,22]|[4611686018427387904]|[18446744073709551615]|)"
      R"([4294967296,4294967296]|-1|1e9|"a.weight"|"b"|\u0000|../|,|{|}|)"
      R"([[[[[[[[[[[[[[[[)",
      {std::string(8, '\0'), std::string(8, '\xFF'),
       std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 8),
       std::string("\x00\xE1\xF5\x05\0\0\0\0", 8)});
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::TempDir dir;
  if (size < 2) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1,
                              size - 1);
  const std::string path = dir / "model.safetensors";
  switch (data[0] % 3) {
    case 0:  // '0'
      testing::WriteOrDie(path, rest);
      ReadAll(path, rest.size());
      break;
    case 1: {
      const auto count = static_cast<unsigned char>(rest[0]);
      testing::WriteOrDie(
          path, SafetensorsBytes(rest.substr(1), std::string(count, 'x')));
      ReadAll(path, count);
      break;
    }
    default: {
      const std::string shards = dir / "shards";
      static const bool made = [&] {
        DELINK_CHECK(MakeDirectories(shards).ok());
        testing::WriteOrDie(shards + "/1.safetensors", OneByte("a"));
        testing::WriteOrDie(shards + "/2.safetensors", OneByte("b"));
        return true;
      }();
      DELINK_CHECK(made);
      testing::WriteOrDie(JoinPath(shards, safetensors::kIndexName), rest);
      const auto folder = Folder::Open(shards);
      MustSay(folder.status());
      if (!folder.ok()) break;
      for (const auto& [name, tensor] : folder->tensors()) {
        DELINK_CHECK(tensor.entry->name == name);
        ReadEntry(*tensor.file, *tensor.entry, 1);
      }
    }
  }
  return 0;
}

}  // namespace delink::fuzz
