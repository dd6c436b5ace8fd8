// What the INPUTs of a corpus name: files, folders, patterns, standard input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

// One file that holds documents.
struct TextInput {
  std::string path;  // what is opened
  std::string name;  // what messages call it
  bool jsonl = false;
};

enum class TextFormat { kByName, kText, kJsonl };

// Stands for standard input.
inline constexpr char kStandardInput[] = "-";

struct TextInputs {
  std::vector<TextInput> files;
  // Left out below folders: files, and hidden files and folders.
  int64_t not_text = 0, hidden = 0;
};

// The paths of the files that `input` stands for: a file for itself; a folder
// for all files below it that are not hidden, nor in a folder that is; a
// pattern (*, ?, [...], as the shell's) for what it matches; both sorted by
// their bytes. An error when there is none.
absl::StatusOr<std::vector<std::string>> ExpandInput(const std::string& input);

// The files of all `inputs`, in their order. Standard input, named at most
// once, has no path. By name, a file is JSONL when it ends in .jsonl, .jsonl.gz
// or .jsonl.zst. Of a folder files that are not text are left out, which the
// first 64 KiB tell: they have a byte 0, or begin as PDF or bzip2 do. Text in
// another encoding than UTF-8 is not left out in silence: UTF-16 that says so
// is known by its mark, the others have no such byte.
absl::StatusOr<TextInputs> ListInputs(const std::vector<std::string>& inputs,
                                      TextFormat format);

// Copies what comes from a file descriptor to a file.
absl::Status SpoolDescriptor(int descriptor, const std::string& path);

}  // namespace delink
