#include "tests/fuzz/edits.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>

#include "framework/base/check.h"
#include "framework/hdf5/hdf5.h"
#include "tests/framework/hdf5/crafted.h"

namespace delink::fuzz {
namespace {

constexpr int64_t kEdges[] = {0,
                              1,
                              -1,
                              2,
                              255,
                              256,
                              65'536,
                              int64_t{1} << 31,
                              int64_t{1} << 32,
                              int64_t{1} << 40,
                              std::numeric_limits<int32_t>::max(),
                              std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min()};

constexpr hdf5::ElementType kTypes[] = {
    hdf5::ElementType::kF32, hdf5::ElementType::kF64, hdf5::ElementType::kI32,
    hdf5::ElementType::kI64, hdf5::ElementType::kU8,  hdf5::ElementType::kU16,
    hdf5::ElementType::kU32};

class Editor {
 public:
  Editor(hdf5::File& file, const Editable& what, ByteStream& bytes)
      : file_(file), what_(what), bytes_(bytes) {}

  // Edits that do not fit the file change nothing.
  void One() {
    const std::string object = Pick(what_.objects);
    switch (bytes_.Below(12)) {
      case 0:
        file_.SetInt(object, Pick(what_.attributes), bytes_.Number())
            .IgnoreError();
        break;
      case 1: {
        const int64_t bits = bytes_.Number();
        double value = 0;
        std::memcpy(&value, &bits, sizeof(value));
        file_.SetDouble(object, Pick(what_.attributes), value).IgnoreError();
        break;
      }
      case 2:
        file_.SetText(object, Pick(what_.attributes), bytes_.Text())
            .IgnoreError();
        break;
      case 3:
        Remove(object);
        break;
      case 4:
        WriteSmall(object);
        break;
      case 5:
        ClaimMuch(object);
        break;
      case 6:
        Remove(object);
        file_
            .CreateSoftLink(
                bytes_.Below(2) == 0 ? Pick(what_.objects) : bytes_.Text(),
                object)
            .IgnoreError();
        break;
      case 7:
        ReferElsewhere(object);
        break;
      default:
        Craft(object);
    }
  }

 private:
  std::string Pick(const std::vector<std::string>& from) {
    return from[bytes_.Below(from.size())];
  }
  hdf5::ElementType Type() { return kTypes[bytes_.Below(std::size(kTypes))]; }
  void Remove(const std::string& object) {
    if (object != "/") file_.Remove(object).IgnoreError();
  }

  void WriteSmall(const std::string& object) {
    hdf5::Shape shape(1 + bytes_.Below(8));
    for (int64_t& extent : shape) {
      extent = static_cast<int64_t>(bytes_.Below(shape.size() > 3 ? 3 : 9));
    }
    const hdf5::ElementType type = Type();
    std::vector<int64_t> contents(
        static_cast<size_t>(hdf5::ElementCount(shape)) + 1);
    for (int64_t& value : contents) value = bytes_.Number();
    Remove(object);
    auto dataset = file_.CreateDataset(object, type, shape);
    if (!dataset.ok()) return;
    dataset->Write(type, 0, dataset->size(), contents.data()).IgnoreError();
  }

  // A dataset of which nothing is written takes no room.
  void ClaimMuch(const std::string& object) {
    hdf5::Shape shape(1 + bytes_.Below(2));
    for (int64_t& extent : shape) {
      extent = int64_t{1} << bytes_.Below(shape.size() == 1 ? 60 : 30);
    }
    Remove(object);
    const auto dataset = file_.CreateDataset(object, Type(), shape);
    dataset.status().IgnoreError();
  }

  void ReferElsewhere(const std::string& object) {
    const int64_t size = static_cast<int64_t>(bytes_.Below(600));
    Remove(object);
    file_
        .CreateVirtual(object, Type(), {size},
                       {{.begin = 0,
                         .end = size,
                         .file = Pick(what_.files),
                         .dataset = Pick(what_.objects),
                         .offset = static_cast<int64_t>(bytes_.Below(600))}})
        .IgnoreError();
  }

  // What only the library itself can write.
  void Craft(const std::string& object) {
    const std::string other = Pick(what_.files);
    const std::string target = Pick(what_.objects);
    const size_t kind = bytes_.Below(5);
    const int depth = static_cast<int>(bytes_.Below(100));
    if (object == "/") return;
    testing::Craft(file_.path(), [&](hid_t file) {
      switch (kind) {
        case 0:
          return testing::StoreIn(file, object, other);
        case 1:
          return testing::VirtualOver(file, object, other, target);
        case 2:
          return testing::LinkOutside(file, object, other, target);
        case 3:
          return testing::LinkHard(file, target, object + "+");
        default:
          return testing::NestGroups(file, object + "+", depth);
      }
    });
  }

  hdf5::File& file_;
  const Editable& what_;
  ByteStream& bytes_;
};

}  // namespace

uint8_t ByteStream::Byte() {
  if (bytes_.empty()) return 0;
  const uint8_t byte = static_cast<uint8_t>(bytes_.front());
  bytes_.remove_prefix(1);
  return byte;
}

int64_t ByteStream::Number() {
  const uint8_t choice = Byte();
  if (choice < 128) return choice % 32;
  if (choice < 224) return kEdges[choice % std::size(kEdges)];
  uint64_t number = 0;
  for (int i = 0; i < 8; ++i) number = number << 8 | Byte();
  return static_cast<int64_t>(number);
}

std::string ByteStream::Text() {
  std::string text(bytes_.substr(0, Byte() % 24));
  bytes_.remove_prefix(std::min(text.size(), bytes_.size()));
  std::replace(text.begin(), text.end(), '\0', '0');
  return text;
}

size_t ByteStream::Below(size_t bound) {
  return (size_t{Byte()} << 8 | Byte()) % bound;
}

void Edit(const std::string& path, const Editable& what, ByteStream& bytes) {
  auto file = hdf5::File::OpenReadWrite(path);
  DELINK_CHECK(file.ok()) << file.status().ToString();
  Editor editor(*file, what, bytes);
  for (int i = 0; i < 8 && !bytes.empty(); ++i) editor.One();
  const absl::Status closed = file->Close();
  DELINK_CHECK(closed.ok()) << closed.ToString();
}

std::vector<std::string> EditSeeds() {
  std::mt19937_64 random(5);
  std::vector<std::string> seeds = {""};
  // One for each kind of what is crafted, in two files, on some objects, with
  // each of the files that may be named.
  for (char kind = 0; kind < 5; ++kind) {
    for (const char file : {0, 1}) {
      for (const char object : {1, 4, 6, 7, 8, 9}) {
        const char edit[] = {0, 1,      0, file,   0, object, 0, 8,
                             0, object, 0, object, 0, kind,   0, 99};
        seeds.emplace_back(edit, sizeof(edit));
      }
    }
  }
  for (int i = 0; i < 100; ++i) {
    std::string seed(1 + random() % 80, '\0');
    for (char& c : seed) c = static_cast<char>(random());
    seeds.push_back(seed);
  }
  return seeds;
}

}  // namespace delink::fuzz
