#include "data/corpus/text_inputs.h"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/corpus/byte_source.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

namespace fs = std::filesystem;

constexpr char kStandardInputName[] = "standard input";

constexpr int64_t kHeadBytes = 64 << 10;

// The files that an input names.
struct Expansion {
  struct File {
    std::string path;
    bool named = false;  // by itself or by a pattern, not by its folder
  };
  std::vector<File> files;
  int64_t hidden = 0;  // files and folders
};

absl::Status AddBelow(const std::string& dir, Expansion* all) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator it(dir, error);
  for (; !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    if (it->path().filename().string().starts_with('.')) {
      it.disable_recursion_pending();
      ++all->hidden;
    } else if (it->is_regular_file(error)) {
      paths.push_back(it->path().string());
    }
  }
  if (error) return FileError(error.value(), dir, "list folder");
  std::sort(paths.begin(), paths.end());
  for (std::string& path : paths) all->files.push_back({std::move(path)});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Matches(const std::string& pattern) {
  glob_t found = {};
  const int code =
      ::glob(pattern.c_str(), GLOB_ERR | GLOB_NOSORT, nullptr, &found);
  const int error = errno;
  std::vector<std::string> paths(found.gl_pathv,
                                 found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (code == GLOB_NOMATCH) {
    return absl::NotFoundError(absl::StrCat(
        pattern, ": no file matches this pattern; fix it, or name files"));
  }
  if (code != 0) return FileError(error, pattern, "list what matches");
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool IsJsonl(std::string_view name) {
  for (const std::string_view compressed : {".gz", ".zst"}) {
    if (!name.ends_with(compressed)) continue;
    name.remove_suffix(compressed.size());
    break;
  }
  return name.ends_with(".jsonl");
}

absl::StatusOr<Expansion> Expand(const std::string& input) {
  std::vector<std::string> named = {input};
  // The name of a file may look like a pattern.
  if (!PathExists(input) && input.find_first_of("*?[") != input.npos) {
    DELINK_ASSIGN_OR_RETURN(named, Matches(input));
  }
  Expansion all;
  for (const std::string& path : named) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) {
      DELINK_RETURN_IF_ERROR(AddBelow(path, &all));
    } else if (!fs::exists(status)) {
      return FileError(error ? error.value() : ENOENT, path, "find");
    } else if (!fs::is_regular_file(status)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          ": not a file; inputs are read more than once, so send the output of "
          "a pipe to standard input and give - as the input"));
    } else {
      all.files.push_back({.path = path, .named = true});
    }
  }
  if (all.files.empty()) {
    return absl::NotFoundError(absl::StrCat(
        input, ": holds no files", all.hidden > 0 ? " but hidden ones" : "",
        "; name files, or a folder with files"));
  }
  return all;
}

// Judges a file by its first bytes, decompressed.
absl::StatusOr<bool> IsText(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(ByteSource source, ByteSource::Open(path, path));
  std::string head(kHeadBytes, '\0');
  DELINK_ASSIGN_OR_RETURN(const int64_t got,
                          source.Read(head.data(), kHeadBytes));
  head.resize(static_cast<size_t>(got));
  for (const std::string_view mark : {"\xFF\xFE", "\xFE\xFF"}) {
    if (head.starts_with(mark)) return true;
  }
  for (const std::string_view other : {"%PDF-", "BZh91AY&SY"}) {
    if (head.starts_with(other)) return false;
  }
  return head.find('\0') == head.npos;
}

// Adds the files that `input` names.
absl::Status AddFiles(const std::string& input, TextFormat format,
                      TextInputs* all) {
  DELINK_ASSIGN_OR_RETURN(const Expansion expansion, Expand(input));
  const size_t before = all->files.size();
  for (const auto& [path, named] : expansion.files) {
    bool text = true;
    if (!named) {
      DELINK_ASSIGN_OR_RETURN(text, IsText(path));
    }
    if (!text) {
      ++all->not_text;
      continue;
    }
    const bool jsonl = format == TextFormat::kByName
                           ? IsJsonl(path)
                           : format == TextFormat::kJsonl;
    all->files.push_back({.path = path, .name = path, .jsonl = jsonl});
  }
  all->hidden += expansion.hidden;
  if (all->files.size() > before) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat(input, ": none of the ", expansion.files.size(),
                   " files below it is text; name a folder with text files"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandInput(const std::string& input) {
  DELINK_ASSIGN_OR_RETURN(Expansion expansion, Expand(input));
  std::vector<std::string> paths;
  for (auto& file : expansion.files) paths.push_back(std::move(file.path));
  return paths;
}

absl::StatusOr<TextInputs> ListInputs(const std::vector<std::string>& inputs,
                                      TextFormat format) {
  TextInputs all;
  for (const std::string& input : inputs) {
    if (input == kStandardInput) {
      all.files.push_back(
          {.name = kStandardInputName, .jsonl = format == TextFormat::kJsonl});
      continue;
    }
    DELINK_RETURN_IF_ERROR(AddFiles(input, format, &all));
  }
  if (std::count(inputs.begin(), inputs.end(), kStandardInput) > 1) {
    return absl::InvalidArgumentError(
        "-: standard input is named twice, but can be read only once; name it "
        "once");
  }
  return all;
}

absl::Status SpoolDescriptor(int descriptor, const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  std::vector<char> buffer(256 << 10);
  while (true) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, kStandardInputName, "read");
    if (got == 0) return file.Close();
    DELINK_RETURN_IF_ERROR(
        file.Write({buffer.data(), static_cast<size_t>(got)}));
  }
}

}  // namespace delink
