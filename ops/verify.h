// Checks checkpoints for damage, and creates or updates their checksums.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ckpt/integrity/verify.h"

namespace ferry {

/// Checks what open_checkpoint() opens as the other verify() does (ckpt/integrity/verify.h), and
/// the names and shapes of a Hugging Face folder, or of another program's state dict, against the
/// config.json that goes with it. Damage is in the report and is not thrown.
VerifyReport verify(const std::string& path, const VerifyOptions& options = {});

struct RunVerification {
  std::string path;
  std::string tracker_problem;           // empty: none
  std::vector<VerifyReport> iterations;  // each complete one
  std::vector<std::string> notes;        // iterations that were not checked, and why

  size_t problem_count() const;
};

/// Checks every complete iteration of a run folder and its tracker; of another program's run, every
/// step. `options.iteration` is not used. `done`, if given, is called after each iteration, from
/// the calling thread. invalid for anything else than a run.
RunVerification verify_run(const std::string& path, const VerifyOptions& options = {},
                           const std::function<void(const VerifyReport&)>& done = {});

/// The other seal() (ckpt/integrity/verify.h), on the local file system.
SealReport seal(const std::string& path, const SealOptions& options = {});

}  // namespace ferry
