// Where a rank has the values of one parameter in one plane of a ParamStore,
// and how to copy them to the host, from the host and to another such place.
// Internal to store_values.cc.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "framework/device/backend.h"
#include "framework/module/descriptor.h"
#include "framework/module/state_codec.h"

namespace delink {

struct StorePlace {
  StateCodec codec;
  Range held;               // of the parameter's values
  char* values = nullptr;   // device address of the first held one
  float* scales = nullptr;  // kBlock8: of the block that holds it
  int64_t element = 0;      // the parameter's first, in the slab

  bool is_8_bit() const { return codec.storage == StateStorage::kBlock8; }
  bool Holds(const Extent& extent) const;
  // Whether an extent is one run of values whose ends cut no 8-bit block.
  bool HasWholeBlocks(const Extent& extent) const;
};

// Whether all values of an extent are neighbours in the parameter.
inline bool IsOneRun(const Extent& extent) {
  return extent.rect.rows == 1 || extent.rect.columns == extent.pitch;
}

// The held values of an extent, packed. Returns when it is done.
void ReadPlace(Device& device, Stream& stream, const StorePlace& place,
               const Extent& extent, void* values);
// With 8-bit values, the extent must have whole blocks.
void WritePlace(Device& device, Stream& stream, const StorePlace& place,
                const Extent& extent, const void* values);
// Writes extents of 8-bit values that need not have whole blocks: a block is
// written when all its values have been given, each once.
class BlockParts {
 public:
  void Write(Device& device, Stream& stream, const StorePlace& place,
             const Extent& extent, const float* values);

 private:
  struct Block {
    std::vector<float> values;
    int64_t count = 0;  // given so far
  };
  std::map<const float*, Block> blocks_;  // by the address of the scale
};

// Copies stored values between places of one device and codec. Returns false,
// with nothing done, if 8-bit blocks are not the same on both sides.
bool CopyPlace(Device& device, Stream& stream, const StorePlace& from,
               const Extent& extent, const StorePlace& to,
               const Extent& target);

}  // namespace delink
