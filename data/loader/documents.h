// Rows of several documents, kept apart.
//
// A row of a batch is cut out of a corpus wherever it falls: it begins and ends
// within documents, and has others in between. Where documents are masked, a
// token sees its own document alone, as if this stood in a row of its own;
// where the corpus was cut a document begins with the row, and what was before
// the cut is not seen.
#pragma once

#include <cstdint>

namespace delink {

// A target that does not count.
inline constexpr int32_t kNotCounted = -1;

// For a row of `seq` tokens, inputs[i] followed by targets[i], in which a
// document ends with the token `end_of_document`: positions[i] becomes the
// place of inputs[i] in its document, and targets[i] kNotCounted where they are
// of two documents.
void MaskDocuments(int32_t end_of_document, int64_t seq, const int32_t* inputs,
                   int32_t* targets, int32_t* positions);

}  // namespace delink
