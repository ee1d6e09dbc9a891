// A plan: a target catalog, known to the last byte before a byte moves, and a recipe for each
// entry.
//
// Convert, reshard, merge, extract, save and load are plans. check() proves a plan before it runs:
// every output element is written exactly once, every input element is used once or is listed as
// dropped, and everything is inside its file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/core/recipe.h"

namespace ferry {

/// Bytes of a target file that come from no source (headers, constants), written as they are.
struct Literal {
  uint32_t file = 0;
  uint64_t offset = 0;
  std::string bytes;
};

/// Elements of a source entry that the target leaves out on purpose (vocabulary padding, optimizer
/// state of an export). Negative: elements that it holds once more on purpose (an embedding that
/// the target's format repeats).
struct Dropped {
  uint32_t entry = 0;  // position in the source catalog
  int64_t elements = 0;
};

/// A part of a target file that is checked and hashed once all of it is written: what a manifest
/// names. The bytes of a target chunk are inside one item or outside all.
struct Item {
  /// Bytes of the item that have a CRC-32: the elements of a tensor in a zip archive.
  struct Payload {
    uint64_t offset = 0;  // in the file
    uint64_t length = 0;
    /// Where the CRC-32 is written, little-endian, over whatever literals put there: in the item,
    /// after the payload and outside all others.
    std::vector<uint64_t> crc32_offsets;
  };

  uint32_t file = 0;
  uint64_t offset = 0;  // bytes, of the whole item, in its file
  uint64_t length = 0;
  /// By rising offsets, without overlap. Where there are any, each chunk of the item is in one of
  /// them.
  std::vector<Payload> payloads;
  int64_t rank = 0;  // of several processes that run the plan: who writes and digests it
};

struct Plan {
  SharedCatalog source;
  Catalog target;               // all extents raw; files are names inside the output folder
  std::vector<Recipe> recipes;  // one for each target entry
  std::vector<Literal> literals;
  std::vector<Dropped> dropped;
  std::vector<Item> items;

  uint64_t target_bytes() const;  // of all files
};

/// Names every entry of `role` that no recipe uses as dropped, whole.
void drop_unused(Plan& plan, Role role);

/// invalid or mismatch, naming the tensor, when the plan would leave an element unwritten, write
/// one twice, read outside an input, or lose or double an input element without saying so. internal
/// when bytes of the target would overlap or be outside their file or item.
void check(const Plan& plan);

/// The same for one rank's part of a plan (part_of), whose source holds what is in the rank's own
/// memory: invalid, naming the tensor, when a source element is read that is in no chunk. Which
/// source elements are used, and how often, is not checked.
void check_part(const Plan& part);

}  // namespace ferry
