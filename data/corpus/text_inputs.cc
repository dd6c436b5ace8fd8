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
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

namespace fs = std::filesystem;

constexpr char kStandardInputName[] = "standard input";

absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& dir) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator it(dir, error);
  for (; !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    if (it->is_regular_file(error)) paths.push_back(it->path().string());
  }
  if (error) return FileError(error.value(), dir, "list folder");
  std::sort(paths.begin(), paths.end());
  return paths;
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
        pattern, ": no file matches this pattern; mend it, or name files"));
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

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandInput(const std::string& input) {
  std::vector<std::string> named = {input};
  // A file may have a name that reads as a pattern.
  if (!PathExists(input) && input.find_first_of("*?[") != input.npos) {
    DELINK_ASSIGN_OR_RETURN(named, Matches(input));
  }
  std::vector<std::string> files;
  for (const std::string& path : named) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) {
      DELINK_ASSIGN_OR_RETURN(const auto below, FilesBelow(path));
      files.insert(files.end(), below.begin(), below.end());
    } else if (!fs::exists(status)) {
      return FileError(error ? error.value() : ENOENT, path, "find");
    } else if (!fs::is_regular_file(status)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          ": not a file; inputs are read more than once, so send what a pipe "
          "gives to standard input and name that, as -"));
    } else {
      files.push_back(path);
    }
  }
  if (files.empty()) {
    return absl::NotFoundError(absl::StrCat(
        input, ": holds no files; name files, or a folder that has some"));
  }
  return files;
}

absl::StatusOr<std::vector<TextInput>> ListInputs(
    const std::vector<std::string>& inputs, TextFormat format) {
  std::vector<TextInput> files;
  for (const std::string& input : inputs) {
    if (input == kStandardInput) {
      files.push_back(
          {.name = kStandardInputName, .jsonl = format == TextFormat::kJsonl});
      continue;
    }
    DELINK_ASSIGN_OR_RETURN(const auto paths, ExpandInput(input));
    for (const std::string& path : paths) {
      const bool jsonl = format == TextFormat::kByName
                             ? IsJsonl(path)
                             : format == TextFormat::kJsonl;
      files.push_back({.path = path, .name = path, .jsonl = jsonl});
    }
  }
  if (std::count(inputs.begin(), inputs.end(), kStandardInput) > 1) {
    return absl::InvalidArgumentError(
        "-: standard input is named twice, but can be read only once; name it "
        "once");
  }
  return files;
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
