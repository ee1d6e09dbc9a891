// Writes values as Python pickles, protocol 2 as torch.save does.
//
// Opcodes, memo and batches are those of CPython's pickler, so that what PyTorch writes comes out
// the same; what Python unpickles is equal to what the parsed pickle gave. Shared and cyclic
// structure stays so. Nesting is bounded by memory, not by the stack.
//
// Source: CPython Lib/pickle.py (save_*), torch/serialization.py (persistent ids).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// Gives the key under which the archive around the pickle stores a storage. Called in the order in
/// which storages are met, for every mention of one: `storage` is its key in the value's document,
/// `bytes` its length.
using StorageNames = std::function<std::string(std::string_view storage, uint64_t bytes)>;

/// The pickle of `value`; keys of storages stay as they are without `names`. unsupported for a name
/// of a class that no pickle can hold; exhausted when shared structure would be written far beyond
/// the size of its document, or never end (a set that contains itself).
std::string write_pickle(const Value& value, const StorageNames& names = {});

/// The same, in the middle of a pickle that is being written by hand.
class PickleEmitter;
void write_value(const Value& value, const StorageNames& names, PickleEmitter& out);

}  // namespace ferry
