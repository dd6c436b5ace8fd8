"""Checks that files include what they use: includes.py [ROOT].

Of the headers that builds may precompile (cmake/DelinkPrecompiled.cmake), which
would otherwise be missed only where they are not. A file has what it includes
itself and what those headers of ours include that it names.
"""

import re

import source_tree

# Header: what of it is looked for.
USES = {
    "algorithm": r"\bstd::(?:ranges::)?(?:all_of|any_of|clamp|copy|copy_n|count"
                 r"|count_if|equal|fill|fill_n|find|find_if|lower_bound|max"
                 r"|max_element|min|min_element|none_of|remove_if|reverse|sort"
                 r"|stable_sort|transform|unique|upper_bound)\(",
    "cstdint": r"\bu?int(?:8|16|32|64)_t\b",
    "functional": r"\bstd::function\b",
    "map": r"\bstd::map\b",
    "memory": r"\bstd::(?:make_shared|make_unique|shared_ptr|unique_ptr)\b",
    "optional": r"\bstd::(?:nullopt|optional)\b",
    "string": r"\bstd::(?:string|to_string)\b",
    "utility": r"\bstd::(?:exchange|move|pair|swap)\b",
    "vector": r"\bstd::vector\b",
    "absl/status/status.h": r"\babsl::(?:\w*Error|OkStatus|Status)\b",
    "absl/status/statusor.h": r"\babsl::StatusOr\b",
    "absl/strings/str_cat.h": r"\babsl::Str(?:Append|Cat)\b",
    "absl/strings/str_format.h": r"\babsl::StrFormat\b",
    "gmock/gmock.h": r"\b(?:ASSERT|EXPECT)_THAT\(",
    "gtest/gtest.h": r"\b(?:ASSERT|EXPECT)_(?:EQ|FALSE|GT|LT|NE|TRUE)\("
                     r"|\bTEST(?:_F|_P)?\(",
}
# What brings another of them by its own contract.
ALSO = {
    "absl/status/statusor.h": {"absl/status/status.h"},
    "gmock/gmock.h": {"gtest/gtest.h"},
}
INCLUDE = re.compile(r'^ *# *include *[<"]([^>"]+)[>"]', re.M)
NOT_CODE = re.compile(r'//.*|"(?:[^"\\\n]|\\.)*"')


def problems(root):
  texts = {path: "\n".join(source_tree.lines(root, path))
           for path in source_tree.cpp_files(root)}
  includes = {path: set(INCLUDE.findall(text)) for path, text in texts.items()}
  found = []
  for path, text in texts.items():
    if not path.endswith((".h", ".cc")):
      continue  # device code is compiled without precompiled headers
    has = set(includes[path])
    has.update(*(includes[header] for header in includes[path]
                 if header in includes))
    has.update(*(ALSO[header] for header in has & ALSO.keys()))
    code = NOT_CODE.sub("", text)
    for header, use in USES.items():
      used = re.search(use, code)
      if used and header not in has:
        line = code.count("\n", 0, used.start()) + 1
        found.append(f"{path}:{line}: {used[0]} is used: include {header}")
  return found


if __name__ == "__main__":
  source_tree.finish(problems(source_tree.root_argument(__doc__)))
