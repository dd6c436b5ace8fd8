#include "framework/safetensors/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/file.h"
#include "tests/framework/safetensors/crafted.h"
#include "tests/testing/temp_dir.h"

namespace delink::safetensors::file_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SafetensorsBytes;
using testing::TempDir;

class FileTest : public ::testing::Test {
 protected:
  std::string Put(std::string_view bytes) const {
    EXPECT_TRUE(WriteFile(dir_ / "x.safetensors", bytes).ok());
    return dir_ / "x.safetensors";
  }
  // What a file with this header and so many bytes of data is refused with.
  std::string Refusal(std::string_view header, size_t data = 0) const {
    return RefusalOf(SafetensorsBytes(header, std::string(data, 'x')));
  }
  std::string RefusalOf(std::string_view bytes) const {
    const auto file = File::Open(Put(bytes));
    EXPECT_FALSE(file.ok()) << bytes.substr(0, 100);
    const std::string message(file.status().message());
    EXPECT_THAT(message, HasSubstr("x.safetensors: "));
    return message;
  }

  const TempDir dir_;
};

TEST_F(FileTest, TensorsAreReadInTheOrderOfTheirData) {
  // 1, 2, 3 as fp32; -2, 0.5 as bf16; 1 as fp16; nothing; two bytes.
  const std::string data(
      "\0\0\x80\x3F\0\0\0\x40\0\0\x40\x40"
      "\x00\xC0\x00\x3F"
      "\x00\x3C"
      "\x07\xFF",
      20);
  const auto file = File::Open(Put(SafetensorsBytes(
      R"({"h": {"dtype":"F16","shape":[],"data_offsets":[16,18]},)"
      R"("z":{"shape":[3,1],"data_offsets":[0,12],"dtype":"F32"},)"
      R"("none":{"dtype":"F64","shape":[0,5],"data_offsets":[18,18]},)"
      R"("i":{"dtype":"I8","shape":[2],"data_offsets":[18,20]},)"
      R"("__metadata__":{"format":"pt"},)"
      R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]}}   )",
      data)));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> names;
  for (const Entry& entry : file->entries()) names.push_back(entry.name);
  EXPECT_THAT(names, ElementsAre("z", "b", "h", "none", "i"));
  EXPECT_THAT(file->metadata(), ElementsAre(std::pair("format", "pt")));
  EXPECT_THAT(file->entries()[0].shape, ElementsAre(3, 1));
  EXPECT_EQ(file->entries()[3].count(), 0);

  const auto values = [&](int entry, int64_t first, int64_t count) {
    std::vector<float> read(static_cast<size_t>(count));
    EXPECT_TRUE(
        file->Read(At(file->entries(), entry), first, count, read.data()).ok());
    return read;
  };
  EXPECT_THAT(values(0, 0, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(values(0, 1, 1), ElementsAre(2));
  EXPECT_THAT(values(1, 0, 2), ElementsAre(-2, 0.5));
  EXPECT_THAT(values(1, 1, 1), ElementsAre(0.5));
  EXPECT_THAT(values(2, 0, 1), ElementsAre(1));
  char bytes[2] = {};
  ASSERT_TRUE(file->ReadBytes(file->entries()[4], 0, 2, bytes).ok());
  EXPECT_EQ(bytes[0], 7);
  float value = 0;
  const absl::Status refused = file->Read(file->entries()[4], 0, 1, &value);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tensor 'i' is I8"));
  EXPECT_DEATH((void)file->Read(file->entries()[0], 2, 2, &value),
               "z: 2 values from 2 on");
}

// More values than are converted at a time.
TEST_F(FileTest, LongTensorsAreReadFromAnyPlace) {
  constexpr int64_t kCount = 100'003;
  std::string data;
  for (int64_t i = 0; i < kCount; ++i) {
    data += '\0';
    data += static_cast<char>(i % 100);
  }
  const auto file = File::Open(Put(SafetensorsBytes(
      R"({"b":{"dtype":"BF16","shape":[100003],"data_offsets":[0,200006]}})",
      data)));
  ASSERT_TRUE(file.ok()) << file.status();
  for (const int64_t first : {0, 1, 32'767, 60'000}) {
    std::vector<float> values(kCount - static_cast<size_t>(first));
    ASSERT_TRUE(
        file->Read(file->entries()[0], first, kCount - first, values.data())
            .ok());
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &values[i], 4);
      ASSERT_EQ(bits >> 24, (static_cast<size_t>(first) + i) % 100);
    }
  }
}

TEST_F(FileTest, AFileWithoutTensorsIsOne) {
  const auto file = File::Open(Put(SafetensorsBytes("{}", "")));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->entries().empty());
}

TEST_F(FileTest, LinksAreFollowedAndOtherThingsRefused) {
  Put(SafetensorsBytes("{}", ""));
  ASSERT_EQ(::symlink("x.safetensors", (dir_ / "link").c_str()), 0);
  EXPECT_TRUE(File::Open(dir_ / "link").ok());
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(File::Open(dir_ / "pipe").status().message()),
              HasSubstr("name a file in its place"));
  EXPECT_THAT(std::string(File::Open(dir_.path()).status().message()),
              HasSubstr("name a file in its place"));
  EXPECT_EQ(File::Open(dir_ / "none").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(FileTest, HeadersThatAreNoneAreRefused) {
  EXPECT_THAT(RefusalOf("1234567"), HasSubstr("only 7 bytes"));
  EXPECT_THAT(RefusalOf(std::string("\3\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("truncated to 10 bytes instead of 11"));
  EXPECT_THAT(RefusalOf(std::string("\1\xE1\xF5\5\0\0\0\0{}", 10)),
              HasSubstr("100000001 bytes long, more than 100 MB"));
  EXPECT_THAT(RefusalOf("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}"),
              HasSubstr("18446744073709551615 bytes long"));
  EXPECT_THAT(RefusalOf("version https://git-lfs.github.com/spec/v1\n"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(Refusal(""), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Refusal(" {}"), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Refusal("{"), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal("{}x"), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal(R"({"__metadata__":[]})"), HasSubstr("__metadata__"));
  EXPECT_THAT(Refusal(R"({"__metadata__":{"a":1}})"),
              HasSubstr("__metadata__ is no object of texts"));
  EXPECT_THAT(Refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2),
              HasSubstr(R"("a" is there twice)"));
}

TEST_F(FileTest, TensorsThatAreNoneAreRefused) {
  const struct {
    const char *tensor, *why;
  } kCases[] = {
      {"1", "is no object"},
      {R"({"dtype":"F32","shape":[1]})", "has no data_offsets"},
      {R"({"dtype":"F32","data_offsets":[0,4]})", "has no shape"},
      {R"({"shape":[1],"data_offsets":[0,4]})", "has no dtype"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1]})",
       "unknown key 'strides'"},
      {R"({"dtype":"F4","shape":[1],"data_offsets":[0,4]})",
       "unknown dtype 'F4'"},
      {R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})", "dtype is no text"},
      {R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})",
       "shape is not a list"},
      {R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})",
       "shape is not a list"},
      {R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
       "shape is not a list"},
      {R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]})",
       "shape is not a list"},
      {R"({"dtype":"F32","shape":[1e400],"data_offsets":[0,4]})", "not JSON"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", "data_offsets"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})", "data_offsets"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", "data_offsets"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,5]})",
       "has 5 bytes of data, but its shape and dtype take 4"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})",
       "shape is too large"},
      // 2^62 elements of 4 bytes: 2^64, which is 0 in 64 bits.
      {R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})",
       "shape is too large"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(Refusal(std::string(R"({"t":)") + c.tensor + "}", 4),
                HasSubstr(c.why))
        << c.tensor;
  }
  // What a terminal would obey.
  EXPECT_THAT(Refusal("{\"\\u001b[2J\":1}"), HasSubstr("'\\u001b[2J'"));
}

TEST_F(FileTest, DataHaveNoHolesOverlapsOrEnds) {
  const auto header = [](int b, int e, int b2, int e2) {
    const auto tensor = [](int begin, int end) {
      return R"({"dtype":"U8","shape":[)" + std::to_string(end - begin) +
             R"(],"data_offsets":[)" + std::to_string(begin) + "," +
             std::to_string(end) + "]}";
    };
    return R"({"p":)" + tensor(b, e) + R"(,"q":)" + tensor(b2, e2) + "}";
  };
  EXPECT_TRUE(
      File::Open(Put(SafetensorsBytes(header(4, 6, 0, 4), "123456"))).ok());
  EXPECT_THAT(Refusal(header(0, 4, 3, 6), 6),
              HasSubstr("between 'p' and 'q' data overlap by 1 bytes"));
  EXPECT_THAT(Refusal(header(0, 4, 0, 4), 4), HasSubstr("overlap by 4"));
  EXPECT_THAT(Refusal(header(0, 4, 6, 8), 8), HasSubstr("a hole of 2 bytes"));
  EXPECT_THAT(Refusal(header(1, 4, 4, 8), 8),
              HasSubstr("between 'the header' and 'p' there is a hole of 1"));
  const std::string shorter = Refusal(header(0, 4, 4, 8), 7);
  EXPECT_THAT(shorter, HasSubstr("truncated to"));
  EXPECT_THAT(Refusal(header(0, 4, 4, 8), 9),
              HasSubstr("too long: 1 bytes follow the last tensor"));
}

TEST_F(FileTest, AFileThatIsCutOffAfterwardsIsDataLoss) {
  const std::string path = Put(SafetensorsBytes(
      R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "12345678"));
  const auto file = File::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate(path.c_str(), *FileSize(path) - 1), 0);
  float values[2];
  const absl::Status status = file->Read(file->entries()[0], 0, 2, values);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("truncated"));
}

}  // namespace
}  // namespace delink::safetensors::file_test
