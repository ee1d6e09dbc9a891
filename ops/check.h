// Whether a Hugging Face folder is whole, and such that a program will load it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/summary.h"

namespace ferry {

/// "any", "transformers", "vllm", "sglang".
std::string_view name(Loader loader) noexcept;

struct CheckOptions {
  /// The program that is to load the folder: what this program fails on is a problem, and what only
  /// others fail on is not reported. `any`: what some programs fail on is a warning.
  Loader loader = Loader::any;
  /// The folder of the model that this one was made from, to compare names, shapes, config.json and
  /// files with; empty: none.
  std::string like = {};
};

struct CheckReport {
  std::string path;    // the folder that was checked
  std::string family;  // of a known one; empty: the tensors were compared with each other
  std::string like;    // the folder that it was compared with; empty: none
  Loader loader = Loader::any;
  /// Problems first. Kinds: "files", "index" (files of the weights); "missing", "left_over",
  /// "shape", "dtype" (tensors); "names" (wrapped, or not the hub's); "tie", "mtp", "parts" (the
  /// output layer, layers for multi-token prediction, parts for images and sounds);
  /// "quantisation"; "config"; "tokenizer"; "generation".
  std::vector<Finding> findings;
  int64_t problems = 0;  // among the findings; the others are warnings
  int64_t tensors = 0, files = 0;
  double seconds = 0;
};

/// Checks the folder `path`, from headers and small files alone: what is wrong is in the report and
/// not thrown. A hub cache leads to its snapshot. not_found when nothing is there; invalid where it
/// is not a Hugging Face folder; as open_checkpoint() for `options.like`. Findings name options as
/// option() does (ckpt/base/error.h).
CheckReport check(const std::string& path, const CheckOptions& options = {});

}  // namespace ferry
