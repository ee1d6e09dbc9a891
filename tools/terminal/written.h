// What a command says of the files that it wrote, or would write.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ferry::tool {

struct WrittenFiles {
  std::vector<std::pair<std::string, uint64_t>> files;  // name, bytes
  bool dry_run = false;
  double seconds = 0;                  // of reading and writing
  std::optional<uint64_t> free_bytes;  // of a dry run: at the target's place, where that is told

  uint64_t bytes() const;
};

/// "wrote 27 tensors, 67,808 parameters, 1.4 MB in 0.3 s (4.5 MB/s)", and a table of the files, the
/// middle of a long list left out. `integers`: of quantised weights, whose parameters cannot be
/// counted.
std::string written_text(const WrittenFiles& written, int64_t tensors, int64_t parameters,
                         int64_t integers = 0);

/// [{"path", "bytes"}]
nlohmann::json written_json(const WrittenFiles& written);

}  // namespace ferry::tool
