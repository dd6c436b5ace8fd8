// Keeps the documents of a row apart.
//
// A row of a batch is cut out of a corpus at any place: it can begin and end
// within documents and have others in between. If documents are masked, a token
// attends only to its own document, as if that had a row of its own. If the cut
// is within a document, the row has only the part after the cut, as a document.
#pragma once

#include <cstdint>

namespace delink {

// A target that does not count in the loss.
inline constexpr int32_t kNotCounted = -1;

// Masks a row of `seq` tokens, in which targets[i] follows inputs[i] and
// documents end with the token `end_of_document`. Sets positions[i] to the
// place of inputs[i] in its document, and targets[i] to kNotCounted if it
// belongs to the next document.
void MaskDocuments(int32_t end_of_document, int64_t seq, const int32_t* inputs,
                   int32_t* targets, int32_t* positions);

}  // namespace delink
