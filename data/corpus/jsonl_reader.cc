#include "data/corpus/jsonl_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

using nlohmann::json;

constexpr size_t kFill = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kWhiteSpace = " \t\r";
constexpr size_t kFieldsNamed = 8;

// The library's message without its name, the place (it sees one line only) and
// the text that it read last, which can be the whole document.
std::string Plain(std::string what) {
  const size_t column = what.find("column ");
  const size_t colon = what.find(": ", column == what.npos ? 0 : column);
  if (colon != what.npos) what.erase(0, colon + 2);
  const size_t last = what.find("; last read: '");
  if (last != what.npos) {
    what.erase(last, what.rfind('\'') + 1 - last);
  }
  return what;
}

// Extracts the text of a line while it is parsed, and keeps nothing else.
class TextField final : public json::json_sax_t {
 public:
  explicit TextField(const std::string& field) : field_(field) {}

  bool null() override { return Value("null"); }
  bool boolean(bool) override { return Value("a boolean"); }
  bool number_integer(json::number_integer_t) override {
    return Value("a number");
  }
  bool number_unsigned(json::number_unsigned_t) override {
    return Value("a number");
  }
  bool number_float(json::number_float_t, const std::string&) override {
    return Value("a number");
  }
  bool binary(json::binary_t&) override { return Value("binary"); }
  bool string(std::string& value) override {
    if (wanted_ && depth_ == 1) {
      wanted_ = false;
      text = std::move(value);
      return true;
    }
    return Value("a string");
  }
  bool start_object(size_t) override {
    if (depth_ > 0 && !Value("an object")) return false;
    ++depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (!Value("an array")) return false;
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool end_array() override { return end_object(); }

  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    wanted_ = name == field_;
    if (wanted_ && found) {
      problem = absl::StrCat("has the field '", field_, "' twice");
      return false;
    }
    found = found || wanted_;
    if (fields.size() <= kFieldsNamed) fields.push_back(name);
    return true;
  }
  bool parse_error(size_t at, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position = at;
    problem = absl::StrCat("is not JSON: ", Plain(error.what()));
    return false;
  }

  std::string text;
  bool found = false;
  std::vector<std::string> fields;
  std::string problem;
  size_t position = 0;  // of the problem, from 1; 0: the whole line

 private:
  // Whether a value that is not the text is in an allowed place.
  bool Value(const char* kind) {
    if (depth_ == 0) {
      problem = absl::StrCat("is ", kind, ", not an object");
      return false;
    }
    if (wanted_ && depth_ == 1) {
      problem = absl::StrCat("has ", kind, " in '", field_,
                             "', where the text should be");
      return false;
    }
    return true;
  }

  const std::string& field_;
  int depth_ = 0;
  bool wanted_ = false;  // the next value is that of the field
};

// How to fix a line.
std::string Remedy(const TextField& line) {
  if (line.found) return "; fix the line, or remove it";
  return "; name the field with --text-field, fix the line, or remove it";
}

std::string NoField(const std::string& field, const TextField& line) {
  std::string known = "; it is empty";
  if (!line.fields.empty()) {
    const bool more = line.fields.size() > kFieldsNamed;
    const auto end = line.fields.end() - (more ? 1 : 0);
    known = absl::StrCat("; it has '",
                         absl::StrJoin(line.fields.begin(), end, "', '"), "'",
                         more ? " and more" : "");
  }
  return absl::StrCat("has no field '", field, "'", known);
}

}  // namespace

absl::Status JsonlReader::Fill() {
  // Drops the lines before the current one.
  buffer_.erase(0, line_begin_);
  buffer_offset_ += static_cast<int64_t>(line_begin_);
  line_end_ -= line_begin_;
  line_begin_ = 0;
  const size_t old = buffer_.size();
  buffer_.resize(old + kFill);
  DELINK_ASSIGN_OR_RETURN(const int64_t got,
                          source_.Read(buffer_.data() + old, kFill));
  buffer_.resize(old + static_cast<size_t>(got));
  ended_ = got < static_cast<int64_t>(kFill);
  return absl::OkStatus();
}

std::string JsonlReader::Place() const {
  return absl::StrCat(source_.name(), ":", line_number_);
}

absl::StatusOr<bool> JsonlReader::NextLine() {
  // Skip the newline of the previous line.
  if (line_number_ > 0) {
    line_begin_ = std::min(line_end_ + 1, buffer_.size());
  }
  line_end_ = line_begin_;
  ++line_number_;
  while (true) {
    const size_t newline = buffer_.find('\n', line_end_);
    line_end_ = std::min(newline, buffer_.size());
    if (line_end_ - line_begin_ > longest_line_) {
      return absl::InvalidArgumentError(absl::StrCat(
          Place(), ": byte ",
          buffer_offset_ + static_cast<int64_t>(line_begin_),
          ": the line is longer than ", longest_line_ >> 20,
          " MiB; is it JSONL, one object a line? Split the document, or leave "
          "it out"));
    }
    if (newline != std::string::npos) return true;
    if (ended_) return line_end_ > line_begin_;
    DELINK_RETURN_IF_ERROR(Fill());
  }
}

absl::Status JsonlReader::ParseLine() {
  const int64_t offset = buffer_offset_ + static_cast<int64_t>(line_begin_);
  std::string_view line =
      std::string_view(buffer_).substr(line_begin_, line_end_ - line_begin_);
  const size_t valid = ScanUtf8(line).valid;
  if (valid < line.size()) {
    return NotUtf8(Place(), offset + static_cast<int64_t>(valid),
                   line.substr(valid));
  }
  const bool marked = offset == 0 && line.starts_with(kByteOrderMark);
  if (marked) line.remove_prefix(kByteOrderMark.size());
  text_.clear();
  text_at_ = 0;
  if (line.find_first_not_of(kWhiteSpace) == line.npos) return absl::OkStatus();
  TextField parsed(text_field_);
  json::sax_parse(line.begin(), line.end(), &parsed);
  if (parsed.problem.empty() && !parsed.found) {
    parsed.problem = NoField(text_field_, parsed);
  }
  if (!parsed.problem.empty()) {
    const size_t at = std::clamp<size_t>(parsed.position, 1, line.size()) - 1 +
                      (marked ? kByteOrderMark.size() : 0);
    return absl::InvalidArgumentError(
        absl::StrCat(Place(), ": byte ", offset + static_cast<int64_t>(at),
                     ": the line ", parsed.problem, Remedy(parsed)));
  }
  text_ = std::move(parsed.text);
  if (text_.empty()) ++empty_;
  return absl::OkStatus();
}

absl::StatusOr<TextPiece> JsonlReader::Next() {
  while (text_at_ == text_.size()) {
    DELINK_ASSIGN_OR_RETURN(const bool more, NextLine());
    if (!more) return TextPiece();
    DELINK_RETURN_IF_ERROR(ParseLine());
  }
  const std::string_view rest = std::string_view(text_).substr(text_at_);
  const size_t size = FirstPiece(rest);
  TextPiece piece = {.text = std::string(rest.substr(0, size)),
                     .begins = text_at_ == 0,
                     .ends = size == rest.size()};
  text_at_ += size;
  return piece;
}

}  // namespace delink
