#include "framework/safetensors/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/base/file.h"
#include "tests/framework/safetensors/crafted.h"
#include "tests/testing/temp_dir.h"

namespace delink::safetensors::folder_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempDir;

class FolderTest : public ::testing::Test {
 protected:
  void Put(const std::string& name, std::string_view bytes) const {
    ASSERT_TRUE(WriteFile(dir_ / name, bytes).ok());
  }
  // A file of tensors of one byte each.
  void PutTensors(const std::string& name, std::string_view letters) const {
    std::string header = "{";
    for (size_t i = 0; i < letters.size(); ++i) {
      header += std::string(i == 0 ? "\"" : ",\"") + letters[i] +
                R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
                std::to_string(i) + "," + std::to_string(i + 1) + "]}";
    }
    Put(name, testing::SafetensorsBytes(header + "}", letters));
  }
  std::string Refusal() const {
    const auto folder = Folder::Open(dir_.path());
    EXPECT_FALSE(folder.ok());
    return std::string(folder.status().message());
  }

  const TempDir dir_;
};

char ByteOf(const Folder& folder, std::string_view name) {
  const Folder::Tensor* const tensor = folder.Find(name);
  char byte = 0;
  if (tensor != nullptr) {
    EXPECT_TRUE(tensor->file->ReadBytes(*tensor->entry, 0, 1, &byte).ok());
  }
  return byte;
}

constexpr char kTwoShards[] =
    R"({"metadata":{"total_size":99},"weight_map":
        {"c":"2.safetensors","a":"1.safetensors","b":"2.safetensors"}})";

TEST_F(FolderTest, OneFileIsAFolder) {
  PutTensors("model.safetensors", "ab");
  // Which is not looked at then.
  Put("model.safetensors.index.json", "{");
  const auto folder = Folder::Open(dir_.path());
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->tensors().size(), 2u);
  EXPECT_EQ(ByteOf(*folder, "b"), 'b');
  EXPECT_EQ(folder->Find("c"), nullptr);
}

TEST_F(FolderTest, ShardsAreFoundByTheIndex) {
  PutTensors("1.safetensors", "a");
  PutTensors("2.safetensors", "bc");
  Put("model.safetensors.index.json", kTwoShards);
  auto opened = Folder::Open(dir_.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  // Also once it has moved.
  const Folder folder = *std::move(opened);
  EXPECT_EQ(folder.files().size(), 2u);
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_EQ(ByteOf(folder, name), *name);
  }
}

TEST_F(FolderTest, AllThatDoesNotFitIsToldAtOnce) {
  PutTensors("1.safetensors", "ab");
  PutTensors("2.safetensors", "dc");
  Put("model.safetensors.index.json",
      R"({"weight_map": {"a":"1.safetensors","b":"2.safetensors",
          "c":"2.safetensors","e":"1.safetensors","f":"2.safetensors"}})");
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("missing in the shards: b (2.safetensors), "
                              "e (1.safetensors), "
                              "f (2.safetensors)"),
                    HasSubstr("in the shards, but not in the index: b "
                              "(1.safetensors), "
                              "d (2.safetensors)")));
}

TEST_F(FolderTest, MissingShardsAreNamed) {
  PutTensors("3.safetensors", "a");
  Put("model.safetensors.index.json", kTwoShards);
  EXPECT_THAT(Refusal(), HasSubstr("lacks 1.safetensors, 2.safetensors"));
}

TEST_F(FolderTest, FoldersWithoutWeightsSayWhatIsMissing) {
  EXPECT_THAT(Refusal(), HasSubstr("has neither model.safetensors nor "
                                   "model.safetensors.index.json"));
  Put("pytorch_model.bin", "");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("has pytorch_model.bin but no"),
                               HasSubstr("save_pretrained")));
}

TEST_F(FolderTest, IndicesThatAreNoneAreRefused) {
  PutTensors("1.safetensors", "a");
  const struct {
    const char *index, *why;
  } kCases[] = {
      {"{", "no JSON"},
      {"[]", "has no weight_map"},
      {"{}", "has no weight_map"},
      {R"({"weight_map": []})", "has no weight_map"},
      {R"({"weight_map": {"a": 1}})",
       "for 'a' something that is not the name of a file"},
      {R"({"weight_map": {"a": "../1.safetensors"}})",
       "not the name of a file"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "not the name of a file"},
      {R"({"weight_map": {"a": ".."}})", "not the name of a file"},
      {R"({"weight_map": {"a": ""}})", "not the name of a file"},
      {R"({"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}})",
       "twice"},
  };
  for (const auto& c : kCases) {
    Put("model.safetensors.index.json", c.index);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("model.safetensors.index.json: "),
                                 HasSubstr(c.why)))
        << c.index;
  }
  Put("model.safetensors.index.json",
      R"({"weight_map":{"a":"1.safetensors"}})");
  EXPECT_TRUE(Folder::Open(dir_.path()).ok());
}

TEST_F(FolderTest, LongListsEnd) {
  std::string index = R"({"weight_map":{"a":"1.safetensors")";
  for (int i = 0; i < 60; ++i) {
    index += ",\"x" + std::to_string(i) + R"(":"1.safetensors")";
  }
  PutTensors("1.safetensors", "a");
  Put("model.safetensors.index.json", index + "}}");
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr(" and 10 more"), Not(HasSubstr("x9 "))));
}

}  // namespace
}  // namespace delink::safetensors::folder_test
