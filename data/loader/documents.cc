#include "data/loader/documents.h"

namespace delink {

void MaskDocuments(int32_t end_of_document, int64_t seq, const int32_t* inputs,
                   int32_t* targets, int32_t* positions) {
  int32_t place = 0;
  for (int64_t i = 0; i < seq; ++i) {
    positions[i] = place++;
    if (inputs[i] != end_of_document) continue;
    targets[i] = kNotCounted;
    place = 0;
  }
}

}  // namespace delink
