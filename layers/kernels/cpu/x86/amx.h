// AMX's tile registers. A process must ask Linux for them.
#pragma once

namespace delink::cpu {

// Asks Linux for the tiles. Returns 0, or errno.
using AskForTiles = int (*)();

// Whether the process may use tiles, on a processor that has them. If not, logs
// it.
bool MayUseTiles(AskForTiles ask);

// Whether this processor has tiles and products of bf16 on them, and this
// process may use them. It asks once.
bool HasAmx();

}  // namespace delink::cpu
