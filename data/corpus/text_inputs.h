// Resolves the inputs of a corpus: files, folders, patterns, standard input.
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
  // Left out below folders: files that are not text; hidden files and folders.
  int64_t not_text = 0, hidden = 0;
};

// The paths of the files that `input` names. A folder names all files below it
// that are neither hidden nor in a hidden folder. A pattern (*, ?, [...], as in
// the shell) names what it matches. Paths of a folder or pattern are sorted by
// their bytes. It is an error if there is no file.
absl::StatusOr<std::vector<std::string>> ExpandInput(const std::string& input);

// The files of all `inputs`, in their order. Standard input has no path and may
// be named once. With kByName a file is JSONL if its name ends in .jsonl,
// .jsonl.gz or .jsonl.zst. Files below a folder are left out if they are not
// text: if their first 64 KiB have a byte 0, or begin like PDF or bzip2. Text
// in another encoding than UTF-8 is kept, so that its reader reports it: UTF-16
// is recognised by its byte order mark, other encodings have no byte 0.
absl::StatusOr<TextInputs> ListInputs(const std::vector<std::string>& inputs,
                                      TextFormat format);

// Copies all that a file descriptor delivers to a file.
absl::Status SpoolDescriptor(int descriptor, const std::string& path);

}  // namespace delink
