// What `ferry inspect` tells beside formats, shapes and sizes: the run's other iterations, how
// weights are quantised, what prediction layers hold, whether ferry wrote the files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "convert/convert.h"

namespace ferry::tool {

/// Of the run folder that was given, or that an iteration's folder lies in.
struct RunFacts {
  std::vector<int64_t> iterations;  // rising; finished or not
  bool release = false;
  std::string tracker;  // what the tracker names; empty: there is none
};

/// Layers for multi-token prediction.
struct PredictionLayers {
  int64_t tensors = 0, parameters = 0;
  std::vector<std::string> modules;  // "eh_proj", "transformer_layer", in the catalog's order
};

struct FurtherFacts {
  std::optional<RunFacts> run;
  std::string quantisation;  // "gptq, 4 bits, groups of 128"; empty: none is told
  PredictionLayers prediction;
  bool by_ferry = false;  // ferry's manifest lies beside the files
};

/// `given` is the path as the user gave it. Reads names of files, and config.json.
FurtherFacts further_facts(const Checkpoint& checkpoint, const ModelSummary& model,
                           const std::string& given);

/// "3: 100, 200, 300 (the tracker names 300)".
std::string to_text(const RunFacts& run);
/// "2.10 million parameters in enorm, hnorm, eh_proj".
std::string to_text(const PredictionLayers& prediction);

}  // namespace ferry::tool
