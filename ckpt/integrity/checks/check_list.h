// The byte checks of a checkpoint, each with what it is of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "ckpt/integrity/checks/byte_checks.h"
#include "ckpt/integrity/manifest/manifest.h"

namespace ferry {

/// Where a check comes from.
struct CheckOrigin {
  const ManifestItem* item = nullptr;    // of ferry's manifest
  const std::string* archive = nullptr;  // of a record: what its archive holds
  std::string record;                    // of a record: its name
  bool blob = false;                     // of a download: the name of the blob is its SHA-256
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
