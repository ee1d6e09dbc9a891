// What all ranks bring, as rank 0 sees it: who writes what, and where everything is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/format/dcp/dcp_metadata_writer.h"
#include "ckpt/group/wire.h"
#include "ckpt/integrity/manifest/manifest.h"

namespace ferry {

/// Made of the descriptions of all ranks (OwnFiles::description), and good for all saves of the
/// same shapes. Linear in the boxes of all ranks, some 150 bytes each.
class GatheredShards {
 public:
  /// `descriptions` by rank. invalid when two ranks contradict each other, an object comes from
  /// several, or the boxes of a tensor do not cover it exactly once.
  explicit GatheredShards(const std::vector<std::string>& descriptions);

  /// By rank: which of its boxes it writes, as OwnFiles::write() takes it. Where several ranks have
  /// equal boxes, the one that has least to write so far takes it.
  const std::vector<std::string>& chosen() const noexcept { return chosen_; }

  /// What OwnFiles::write() returned, by rank: the places of one save, instead of the last one's.
  void set_places(const std::vector<std::string>& places);

  /// What `.metadata` says, but for what the format adds.
  DcpContent& content() noexcept { return content_; }
  /// The files that were written, with the digests of their items.
  Manifest& manifest() noexcept { return manifest_; }

 private:
  struct Mention {  // of a chunk of an entry, or of an object, by a rank
    uint32_t entry, chunk;
  };
  // Boxes that ranks came with, of one tensor: of each its offset, then its size.
  struct Given {
    std::vector<int64_t> boxes;
    std::vector<uint32_t> ranks;
  };
  static constexpr uint32_t kNotChosen = UINT32_MAX;

  void read(uint32_t rank, const std::string& description);
  void read_tensor(uint32_t rank, Unpacker& description);
  // The entry's position, and whether no rank named it before.
  std::pair<uint32_t, bool> entry_of(std::string_view name);
  std::vector<uint32_t> choose(uint32_t entry, std::vector<uint64_t>& loads);
  void keep_chosen(const std::vector<std::vector<uint32_t>>& kept);

  // Finds a name in a text without making a string of it.
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  DcpContent content_;
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> entries_;  // by name
  std::vector<Given> given_;                    // by entry; until chunks are chosen
  std::vector<std::vector<Mention>> mentions_;  // by rank, in the order of its description
  std::vector<std::string> chosen_;
  Manifest manifest_;
};

}  // namespace ferry
