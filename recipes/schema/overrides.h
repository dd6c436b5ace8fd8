// `--set key=value` on a document that has been read but not yet understood.
#pragma once

#include <string_view>

#include "recipes/schema/problems.h"
#include "recipes/schema/value.h"

namespace delink::schema {

// Sets one key. The key is dotted and counts list elements from 0
// ("stage.1.parallel.data=2"). The value is TOML if it parses as TOML, else a
// string. Missing tables are created, missing lists are not. The value's source
// is "--set key=value".
void ApplySet(std::string_view set, Table* document, Problems* problems);

}  // namespace delink::schema
