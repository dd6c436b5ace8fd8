// Where the files of this checkout are, which tests read: recipes, docs, data.
// Only source_path.cc is compiled with that path, so that ccache finds what
// another checkout has compiled.
#pragma once

#include <string>

namespace delink::testing {

// Of a file or folder of the checkout, "recipes/tiny.toml" say.
std::string SourcePath(const std::string& name);

}  // namespace delink::testing
