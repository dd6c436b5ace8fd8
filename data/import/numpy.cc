// NumPy's .npy: "\x93NUMPY", the version in two bytes, the header's length
// (u16, from version 2 on u32), and the header: a Python dictionary with descr,
// fortran_order and shape
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/import/layout.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr std::string_view kArrayMagic = "\x93NUMPY";
constexpr int64_t kLongestHeader = 64 << 10;

// The text after "'key':" up to one of `ends`, without leading spaces.
std::string Value(const std::string& header, const std::string& key,
                  const char* ends) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == std::string::npos) return "";
  const size_t begin = header.find_first_not_of(' ', at + key.size() + 3);
  if (begin == std::string::npos) return "";
  const size_t end = header.find_first_of(ends, begin);
  return header.substr(begin, end == std::string::npos ? end : end - begin);
}

// The numbers of a shape such as "(3, 4".
std::optional<std::vector<int64_t>> Shape(std::string text) {
  if (text.empty() || text.front() != '(') return std::nullopt;
  std::vector<int64_t> shape;
  int64_t total = 1;
  for (const absl::string_view part :
       absl::StrSplit(text.substr(1), ',', absl::SkipWhitespace())) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0) return std::nullopt;
    if (size > 0 && total > std::numeric_limits<int64_t>::max() / 8 / size) {
      return std::nullopt;
    }
    total *= size;
    shape.push_back(size);
  }
  return shape;
}

absl::StatusOr<TokenElement> TypeOf(const std::string& path,
                                    const std::string& descr) {
  // "'<u2'": byte order, kind, bytes.
  if (descr.size() == 5 && descr.front() == '\'') {
    const char order = descr[1], kind = descr[2];
    const int bytes = descr[3] - '0';
    if (kind == 'f') {
      return BadTokenFile(path,
                          absl::StrCat("dtype ", descr,
                                       ": floating-point numbers, not tokens; "
                                       "save it with .astype(numpy.uint16) or "
                                       "uint32, if they are whole"));
    }
    const auto type = TokenElementByName(
        absl::StrCat(std::string(1, kind == 'u' ? 'u' : 'i'), 8 * bytes));
    if (order != '>' && (kind == 'u' || kind == 'i') && type.has_value()) {
      return *type;
    }
  }
  return BadTokenFile(path,
                      absl::StrCat("dtype ", descr.empty() ? "unknown" : descr,
                                   " is not supported; save it with "
                                   ".astype(numpy.uint16), uint32 or int64"));
}

}  // namespace

absl::StatusOr<TokenLayout> ReadNumpyLayout(const std::string& path,
                                            bool rows) {
  DELINK_ASSIGN_OR_RETURN(const std::string head,
                          ReadHead(path, 12 + kLongestHeader));
  const absl::Status cut = BadTokenFile(
      path, absl::StrCat("its header is cut short or damaged; write it again "
                         "with numpy.save"));
  if (std::string_view(head).substr(0, kArrayMagic.size()) != kArrayMagic) {
    return BadTokenFile(path, "wrong magic: not a .npy file of NumPy's");
  }
  if (head.size() < 12) return cut;
  if (head[6] < 1 || head[6] > 3 || head[7] != 0) {
    return BadTokenFile(
        path, absl::StrCat("version ", static_cast<unsigned char>(head[6]), ".",
                           static_cast<unsigned char>(head[7]),
                           " of the format, only 1.0 to 3.0 are known; write "
                           "it again with numpy.save"));
  }
  const bool first = head[6] == 1;
  const size_t begin = first ? 10 : 12;
  const int64_t length =
      NumberAt(first ? TokenElement::kU16 : TokenElement::kU32, head, 8);
  if (length > static_cast<int64_t>(head.size() - begin)) return cut;
  const std::string header = head.substr(begin, static_cast<size_t>(length));
  const std::optional<std::vector<int64_t>> shape =
      Shape(Value(header, "shape", ")"));
  if (!shape.has_value()) return cut;
  DELINK_ASSIGN_OR_RETURN(const TokenElement type,
                          TypeOf(path, Value(header, "descr", ",}")));
  const std::string order = Value(header, "fortran_order", ",}");
  const bool columns = order == "True";
  if (!columns && order != "False") return cut;
  if (shape->empty() || shape->size() > 2 || (columns && shape->size() == 2)) {
    return BadTokenFile(
        path, absl::StrCat("an array of ", shape->size(), " dimensions",
                           columns ? " in Fortran order" : "",
                           "; save one of 1 or 2 in C order"));
  }
  const int64_t row = shape->back();
  const int64_t count = shape->size() == 2 ? shape->front() : 1;
  const int64_t offset = static_cast<int64_t>(begin) + length;
  DELINK_RETURN_IF_ERROR(CheckFileSize(path, offset, type, row * count));
  TokenLayout layout{.path = path, .type = type};
  if (!rows) {
    layout.stretches.push_back({.offset = offset, .count = row * count});
    return layout;
  }
  for (int64_t i = 0; row > 0 && i < count; ++i) {
    layout.stretches.push_back(
        {.offset = offset + i * row * ByteSize(type), .count = row});
  }
  return layout;
}

}  // namespace delink
