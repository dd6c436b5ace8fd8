// `--set key=value` on a document that has been read but not yet understood.
#pragma once

#include <string_view>

#include "recipes/schema/problems.h"
#include "recipes/schema/value.h"

namespace delink::schema {

// Sets one key: dotted, an element of a list by its index from 0
// ("stage.1.parallel.data=2"). The value is TOML where it reads as TOML, else a
// string. Tables on the way are made where they are missing; lists are not.
// What was set carries "--set key=value" as its place.
void ApplySet(std::string_view set, Table* document, Problems* problems);

}  // namespace delink::schema
