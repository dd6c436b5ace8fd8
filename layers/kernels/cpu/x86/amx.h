// Tiles of registers, which Linux keeps for a process that has asked for them.
#pragma once

namespace delink::cpu {

// Asks the kernel for the tiles; 0, or what errno then is.
using AskForTiles = int (*)();

// Whether a process may use tiles on a processor that has them; if not, says so
// in the log.
bool MayUseTiles(AskForTiles ask);

// Whether this processor has tiles and products of bf16 on them, and this
// process may use them. It asks once.
bool HasAmx();

}  // namespace delink::cpu
