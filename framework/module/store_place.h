// Where a rank has the values of one parameter in one plane of a ParamStore,
// and their way to the host, from there, and to another such place. Internal to
// store_values.cc.
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
  // Whether an extent is one run of values, and no block of 8 bits is cut by
  // its ends.
  bool HasWholeBlocks(const Extent& extent) const;
};

// Whether all values of an extent are neighbours in the parameter.
inline bool IsOneRun(const Extent& extent) {
  return extent.rect.rows == 1 || extent.rect.columns == extent.pitch;
}

// The held values of an extent, packed. Returns when it is done.
void ReadPlace(Device& device, Stream& stream, const StorePlace& place,
               const Extent& extent, void* values);
// Where blocks are of 8 bits, the extent has whole ones.
void WritePlace(Device& device, Stream& stream, const StorePlace& place,
                const Extent& extent, const void* values);
// The same of 8-bit values, of any extents: a block is written when all of it
// has come, each value once.
class BlockParts {
 public:
  void Write(Device& device, Stream& stream, const StorePlace& place,
             const Extent& extent, const float* values);

 private:
  struct Block {
    std::vector<float> values;
    int64_t count = 0;  // that have come
  };
  std::map<const float*, Block> blocks_;  // by where its scale is
};

// As stored, between places of one device and codec. False, and nothing is
// done, where blocks of 8 bits are not the same on both sides.
bool CopyPlace(Device& device, Stream& stream, const StorePlace& from,
               const Extent& extent, const StorePlace& to,
               const Extent& target);

}  // namespace delink
