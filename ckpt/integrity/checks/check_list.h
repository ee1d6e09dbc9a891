// The byte checks of a checkpoint, each with what it is of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "ckpt/integrity/checks/byte_checks.h"
#include "ckpt/integrity/manifest.h"

namespace ferry {

/// Something that is wrong with a checkpoint.
struct Problem {
  std::string file;     // inside the checkpoint's folder; empty: the checkpoint as a whole
  uint64_t offset = 0;  // of the bytes in question, in the file
  uint64_t bytes = 0;   // 0: the file as a whole
  std::string holds;    // what these bytes are: "tensor a.b [0:2, 0:32]", "object args"
  std::string what;     // is wrong: a sentence that names all of the above
};

/// Where a check comes from.
struct CheckOrigin {
  const ManifestItem* item = nullptr;    // of ferry's manifest
  const std::string* archive = nullptr;  // of a record: what its archive holds
  std::string record;                    // of a record: its name
};

/// Origins are parallel to checks. A file that is missing or could not be read has no checks.
struct CheckList {
  std::vector<ByteCheck> checks;
  std::vector<CheckOrigin> origins;

  void add(const ByteCheck& check, CheckOrigin origin = {}) {
    checks.push_back(check);
    origins.push_back(std::move(origin));
  }
  void append(CheckList list) {
    std::move(list.checks.begin(), list.checks.end(), std::back_inserter(checks));
    std::move(list.origins.begin(), list.origins.end(), std::back_inserter(origins));
  }
};

}  // namespace ferry
