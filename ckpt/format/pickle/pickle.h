// Python pickles, read by a parser that executes nothing.
//
// All protocols (0 to 5) and every opcode that torch.save, Megatron-LM and PyTorch DCP emit. A
// GLOBAL becomes a name; REDUCE, NEWOBJ and BUILD make `object` nodes that remember constructor,
// arguments and state. No module is imported and no constructor runs, whatever the names say:
// "os.system" is a string like any other. Known constructors are understood, not called:
// collections.OrderedDict and dict, builtins.set, torch.Size (a tuple),
// torch._utils._rebuild_tensor_v2 and v3 and _rebuild_parameter with a storage persistent id (a
// tensor), _codecs.encode (bytes), torch dtypes.
//
// Source: CPython Lib/pickletools.py (opcode semantics), torch/serialization.py (persistent ids).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

struct PickleLimits {
  uint64_t nodes = 64u << 20;          // values; a hostile pickle stops here with exhausted
  uint64_t bytes = uint64_t{4} << 30;  // of strings and copies in all
};

/// Parses the one pickle that `bytes` starts with. `what` names the file and item for messages.
/// corrupt with the byte offset when an opcode is unknown, truncated or finds the wrong stack;
/// exhausted when a limit is passed. Memory is bounded by a small multiple of bytes.size().
/// `consumed`, if given, receives the pickle's length (legacy .pt files hold several in a row).
std::shared_ptr<const Document> parse_pickle(std::span<const std::byte> bytes,
                                             std::string_view what, PickleLimits limits = {},
                                             uint64_t* consumed = nullptr);

}  // namespace ferry
