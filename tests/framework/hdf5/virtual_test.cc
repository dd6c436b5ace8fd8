#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/hdf5/hdf5.h"
#include "tests/framework/hdf5/crafted.h"
#include "tests/testing/temp_dir.h"

namespace delink::hdf5::virtual_test {
namespace {

using delink::testing::TempDir;

// Elements 0, 1, 2, ... of a tensor of `shape`, cut at `cuts`, the pieces dealt
// in turn to two files with a gap between them.
void WriteCut(const std::string& dir, const Shape& shape,
              const std::vector<int64_t>& cuts) {
  std::vector<float> all(static_cast<size_t>(ElementCount(shape)));
  std::iota(all.begin(), all.end(), 0.0F);
  std::vector<float> parts[2];
  std::vector<Piece> pieces;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    std::vector<float>& part = parts[i % 2];
    part.resize(part.size() + 3, -1.0F);
    pieces.push_back({.begin = cuts[i],
                      .end = cuts[i + 1],
                      .file = absl::StrCat("writer-", i % 2, ".h5"),
                      .dataset = "/slabs/w",
                      .offset = static_cast<int64_t>(part.size())});
    part.insert(part.end(), all.begin() + cuts[i], all.begin() + cuts[i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    auto file = File::Create(absl::StrCat(dir, "/writer-", i, ".h5"));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->WriteAll("/slabs/w",
                               {static_cast<int64_t>(parts[i].size())},
                               parts[i].data())
                    .ok());
    ASSERT_TRUE(file->Close().ok());
  }
  std::reverse(pieces.begin(), pieces.end());
  auto index = File::Create(dir + "/index.h5");
  ASSERT_TRUE(index.ok());
  ASSERT_TRUE(
      index->CreateVirtual("/model/w", ElementType::kF32, shape, pieces).ok());
  ASSERT_TRUE(index->CreateSoftLink("/model/w", "/model/v").ok());
  ASSERT_TRUE(index->Close().ok());
}

void ExpectCounts(const std::vector<float>& data, int64_t first) {
  for (size_t i = 0; i < data.size(); ++i) {
    ASSERT_EQ(data[i], static_cast<float>(first + static_cast<int64_t>(i)));
  }
}

TEST(Hdf5Virtual, PiecesInTwoFilesAreTheWhole) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 40; ++round) {
    const TempDir dir;
    Shape shape(1 + random() % 4);
    for (int64_t& dim : shape) dim = static_cast<int64_t>(1 + random() % 7);
    const int64_t size = ElementCount(shape);
    std::vector<int64_t> cuts = {0, size};
    for (int i = 0; i < round % 6; ++i) {
      cuts.push_back(static_cast<int64_t>(random() % (size + 1)));
    }
    std::sort(cuts.begin(), cuts.end());
    WriteCut(dir.path(), shape, cuts);

    auto index = File::OpenReadOnly(dir / "index.h5", "writer");
    ASSERT_TRUE(index.ok()) << index.status();
    auto dataset = index->OpenDataset("/model/v");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_TRUE(dataset->info().is_virtual);
    EXPECT_EQ(dataset->info().shape, shape);
    auto whole = index->ReadAll<float>("/model/w");
    ASSERT_TRUE(whole.ok()) << whole.status();
    ExpectCounts(*whole, 0);
    for (int i = 0; i < 20; ++i) {
      int64_t begin = static_cast<int64_t>(random() % (size + 1));
      int64_t end = static_cast<int64_t>(random() % (size + 1));
      if (begin > end) std::swap(begin, end);
      std::vector<float> part(static_cast<size_t>(end - begin));
      ASSERT_TRUE(dataset->Read(begin, end - begin, part.data()).ok());
      ExpectCounts(part, begin);
    }
  }
}

// The library itself would give zeros, without an error.
TEST(Hdf5Virtual, SourcesThatAreOpenAlreadyAreRead) {
  const TempDir dir;
  WriteCut(dir.path(), {60}, {0, 20, 60});
  for (const bool writing : {false, true}) {
    const auto open = [&](const std::string& name) {
      return writing ? File::OpenReadWrite(dir / name, "writer")
                     : File::OpenReadOnly(dir / name, "writer");
    };
    auto writer = open("writer-1.h5");
    ASSERT_TRUE(writer.ok()) << writer.status();
    auto source = writer->OpenDataset("/slabs/w");
    ASSERT_TRUE(source.ok());
    auto index = open("index.h5");
    ASSERT_TRUE(index.ok()) << index.status();
    auto whole = index->ReadAll<float>("/model/w");
    ASSERT_TRUE(whole.ok()) << whole.status();
    ExpectCounts(*whole, 0);
  }
}

TEST(Hdf5Virtual, SourcesThatAreMissingOrShortAreReported) {
  const TempDir dir;
  WriteCut(dir.path(), {60}, {0, 20, 60});
  {
    auto file = File::Create(dir / "writer-1.h5");
    ASSERT_TRUE(file.ok());
    const std::vector<float> data(42);  // 43 are needed
    ASSERT_TRUE(file->WriteAll("/slabs/w", {42}, data.data()).ok());
    ASSERT_TRUE(file->Close().ok());
  }
  const auto message = [&] {
    auto index = File::OpenReadOnly(dir / "index.h5", "writer");
    EXPECT_TRUE(index.ok());
    const absl::Status status = index->OpenDataset("/model/w").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_THAT(message(), ::testing::HasSubstr("element 42 of writer-1.h5"));
  ASSERT_TRUE(RemoveAll(dir / "writer-1.h5").ok());
  EXPECT_THAT(message(), ::testing::AllOf(::testing::HasSubstr("writer-1.h5"),
                                          ::testing::HasSubstr("missing")));
}

TEST(Hdf5Virtual, WhatAFileOnlyClaimsToHoldIsReported) {
  const TempDir dir;
  {
    auto file = File::Create(dir / "part-0.h5");
    ASSERT_TRUE(file.ok());
    const std::vector<float> data(10);
    ASSERT_TRUE(file->WriteAll("/real", {10}, data.data()).ok());
    for (const auto& [name, shape] : std::vector<std::pair<const char*, Shape>>{
             {"/claimed", {int64_t{1} << 40}},
             {"/endless", {int64_t{1} << 40, int64_t{1} << 40}}}) {
      ASSERT_TRUE(file->CreateDataset(name, ElementType::kF32, shape).ok());
    }
    ASSERT_TRUE(file->Close().ok());
    auto index = File::Create(dir / "index.h5");
    ASSERT_TRUE(index.ok());
    ASSERT_TRUE(index
                    ->CreateVirtual("/refers", ElementType::kF32, {20},
                                    {{0, 20, "part-0.h5", "/claimed", 0}})
                    .ok());
    ASSERT_TRUE(index->Close().ok());
  }
  auto file = File::OpenReadOnly(dir / "part-0.h5");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->OpenDataset("/real").ok());
  const auto message = [](const File& in, const char* name) {
    const absl::Status status = in.OpenDataset(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    return std::string(status.message());
  };
  EXPECT_THAT(message(*file, "/claimed"),
              ::testing::HasSubstr("of which the file holds 0"));
  EXPECT_THAT(message(*file, "/endless"),
              ::testing::HasSubstr("more elements than any file has"));
  auto index = File::OpenReadOnly(dir / "index.h5", "part");
  ASSERT_TRUE(index.ok());
  EXPECT_THAT(message(*index, "/refers"),
              ::testing::HasSubstr("/claimed, which has 0"));
}

TEST(Hdf5Virtual, NamesWithPercentSigns) {
  const TempDir dir;
  const std::vector<float> data = {0, 1, 2, 3};
  auto other = File::Create(dir / "50%b-0.h5");
  ASSERT_TRUE(other.ok());
  ASSERT_TRUE(other->WriteAll("/a%%", {4}, data.data()).ok());
  ASSERT_TRUE(other->Close().ok());
  auto file = File::Create(dir / "f.h5");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(
      file->CreateVirtual(
              "/v", ElementType::kF32, {2, 2},
              {{.begin = 0, .end = 4, .file = "50%b-0.h5", .dataset = "/a%%"}})
          .ok());
  ASSERT_TRUE(file->Close().ok());
  auto read = File::OpenReadOnly(dir / "f.h5", "50%b");
  ASSERT_TRUE(read.ok());
  auto back = read->ReadAll<float>("/v");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, data);
}

// What opening /model/w of dir/index.h5, of parts `writer`, says.
std::string Refusal(const TempDir& dir) {
  auto index = File::OpenReadOnly(dir / "index.h5", "writer");
  if (!index.ok()) return std::string(index.status().message());
  const auto data = index->ReadAll<float>("/model/w");
  return data.ok() ? "read" : std::string(data.status().message());
}

// Digests fit all of these: whoever wrote the files wrote them too.
TEST(Hdf5Crafted, NothingIsReadButTheFoldersOwnFiles) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const TempDir outside;
  WriteCut(outside.path(), {60}, {0, 20, 60});
  ASSERT_TRUE(WriteFile(outside / "secret", std::string(4096, 's')).ok());
  const std::string there = outside / "writer-0.h5";
  const struct {
    const char* name;
    std::string file;
    std::function<void(hid_t)> craft;
    std::string says;
  } rows[] = {
      {"external storage", "index.h5",
       [&](hid_t f) { testing::StoreIn(f, "/model/w", outside / "secret"); },
       "another file that is no HDF5 file"},
      {"external storage of a part", "writer-0.h5",
       [&](hid_t f) { testing::StoreIn(f, "/slabs/w", outside / "secret"); },
       "another file that is no HDF5 file"},
      {"an absolute source", "index.h5",
       [&](hid_t f) { testing::VirtualOver(f, "/model/w", there, "/slabs/w"); },
       "not from a file writer-NNNNN.h5"},
      {"a source beside the folder", "index.h5",
       [&](hid_t f) {
         testing::VirtualOver(f, "/model/w", "../writer-0.h5", "/slabs/w");
       },
       "not from a file writer-NNNNN.h5"},
      {"its own source", "index.h5",
       [&](hid_t f) { testing::VirtualOver(f, "/model/w", ".", "/model/w"); },
       "not from a file writer-NNNNN.h5"},
      {"a part that is its own source", "writer-0.h5",
       [&](hid_t f) { testing::VirtualOver(f, "/slabs/w", ".", "/slabs/w"); },
       "is not contiguous"},
      {"an external link", "index.h5",
       [&](hid_t f) { testing::LinkOutside(f, "/model/w", there, "/slabs/w"); },
       "/model/w: is a link out of the file"},
      {"an external link on the way", "index.h5",
       [&](hid_t f) {
         testing::LinkOutside(f, "/model", outside / "index.h5", "/model");
       },
       "/model: is a link out of the file"},
      {"an external link in a part", "writer-0.h5",
       [&](hid_t f) { testing::LinkOutside(f, "/slabs", there, "/slabs"); },
       "writer-0.h5: /slabs/w, which is missing or cannot be opened"},
      {"a part that is a link", "writer-0.h5", {}, "is a link, not a file"},
      {"an index that is a link", "index.h5", {}, "is a link, not a file"},
  };
  for (const auto& [name, file, craft, says] : rows) {
    SCOPED_TRACE(name);
    const TempDir dir;
    WriteCut(dir.path(), {60}, {0, 20, 60});
    EXPECT_EQ(Refusal(dir), "read");
    const std::string path = dir / file;
    if (craft) {
      testing::Craft(path, craft);
    } else {
      ASSERT_TRUE(RemoveAll(path).ok());
      ASSERT_EQ(symlink((outside / file).c_str(), path.c_str()), 0);
    }
    EXPECT_THAT(Refusal(dir), AllOf(HasSubstr(dir.path()), HasSubstr(says)));
  }
}

TEST(Hdf5Crafted, TreesWithoutEndAreRefused) {
  using ::testing::HasSubstr;
  const struct {
    std::function<void(hid_t)> craft;
    std::string says;
  } rows[] = {
      {[](hid_t f) { testing::LinkHard(f, "/model", "/model/again"); },
       "/model/again: is an object that has another name too"},
      {[](hid_t f) { testing::LinkHard(f, "/", "/model/root"); },
       "/model/root/model: is an object that has another name too"},
      {[](hid_t f) { testing::LinkHard(f, "/model/w", "/model/x"); },
       "/model/x: is an object that has another name too"},
      {[](hid_t f) { testing::NestGroups(f, "/model/deep", 3000); },
       "index.h5: has groups more than 32 deep"},
  };
  for (const auto& [craft, says] : rows) {
    const TempDir dir;
    WriteCut(dir.path(), {60}, {0, 20, 60});
    testing::Craft(dir / "index.h5", craft);
    EXPECT_THAT(Refusal(dir), HasSubstr(says));
  }
}

class Readers : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeDirectories(dir_ / "a").ok());
    WriteCut(dir_ / "a", {5, 4, 3}, {0, 7, 31, 60});
    // Readable wherever the folder is moved to.
    ASSERT_TRUE(Rename(dir_ / "a", dir_ / "moved").ok());
  }
  TempDir dir_;
};

TEST_F(Readers, H5pyReadsItFromAnyFolder) {
  if (std::system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") != 0) {
    GTEST_SKIP() << "/usr/bin/python3 has no h5py";
  }
  const std::string script =
      "import h5py, numpy, sys\n"
      "f = h5py.File(sys.argv[1], 'r')\n"
      "want = numpy.arange(60, dtype='f4').reshape(5, 4, 3)\n"
      "assert f['model/w'].is_virtual\n"
      "assert (f['model/w'][...] == want).all()\n"
      "assert (f['model/v'][1:3, 2] == want[1:3, 2]).all()\n"
      "link = f.get('model/v', getlink=True)\n"
      "assert isinstance(link, h5py.SoftLink) and link.path == '/model/w'\n";
  ASSERT_TRUE(WriteFile(dir_ / "read.py", script).ok());
  const std::string index = dir_ / "moved/index.h5";
  const std::string run = "/usr/bin/python3 '" + (dir_ / "read.py") + "' ";
  EXPECT_EQ(std::system(("cd / && " + run + index).c_str()), 0);
  EXPECT_EQ(
      std::system(
          ("cd '" + (dir_ / "moved") + "' && " + run + "index.h5").c_str()),
      0);
}

TEST_F(Readers, H5dumpReadsItFromAnyFolder) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no h5dump here";
  }
  const std::string out = dir_ / "dump.bin";
  const std::string run = "cd / && h5dump -d /model/v -b LE -o '" + out +
                          "' '" + (dir_ / "moved/index.h5") + "' > /dev/null";
  ASSERT_EQ(std::system(run.c_str()), 0);
  const auto bytes = ReadFile(out);
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ(bytes->size(), 240U);
  std::vector<float> data(60);
  std::memcpy(data.data(), bytes->data(), 240);
  ExpectCounts(data, 0);
}

}  // namespace
}  // namespace delink::hdf5::virtual_test
