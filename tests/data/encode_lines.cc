// Prints the ids of every line of a text, each line's on a line of its own, for
// tests that compare them with another program's; with --decode the text of
// such ids. With a folder it writes the tokenizer there as Hugging Face has it.
//
//   encode_lines TOKENIZER [--decode] < TEXT
//   encode_lines TOKENIZER FOLDER
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/huggingface_files.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/file.h"

namespace {

std::string Encoded(const delink::Tokenizer& tokenizer,
                    const std::string& line) {
  const auto ids = tokenizer.Encode(line);
  if (!ids.ok()) return std::string(ids.status().message());
  std::string text;
  for (const int32_t id : *ids) {
    if (!text.empty()) text += ' ';
    text += std::to_string(id);
  }
  return text;
}

std::string Decoded(const delink::Tokenizer& tokenizer,
                    const std::string& line) {
  std::istringstream numbers(line);
  std::vector<int32_t> ids;
  for (int32_t id = 0; numbers >> id;) ids.push_back(id);
  return tokenizer.Decode(ids);
}

int WriteFiles(const delink::Tokenizer& tokenizer, const std::string& folder) {
  for (const auto& [name, bytes] : delink::ForHuggingFace(tokenizer).files) {
    const auto status =
        delink::WriteFile(delink::JoinPath(folder, name), bytes);
    if (status.ok()) continue;
    std::cerr << status.message() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto tokenizer = delink::LoadTokenizerFile(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  const bool decode = argc > 2 && std::string_view(argv[2]) == "--decode";
  if (argc > 2 && !decode) return WriteFiles(**tokenizer, argv[2]);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << (decode ? Decoded(**tokenizer, line)
                         : Encoded(**tokenizer, line))
              << "\n";
  }
  return 0;
}
