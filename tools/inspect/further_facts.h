// What `ferry inspect` tells beside formats, shapes and sizes: the run's other iterations, how
// weights are quantised, what prediction layers hold, how far training was and what its program
// left beside the model, whether ferry wrote the files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/format/hugging_face/training_folder.h"
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

/// How far a training program was that wrote the checkpoint, and what it left beside the model.
struct TrainingFacts {
  TrainingFolder folder;
  std::string program;  // "Trainer", "Lightning 2.5.1"; empty: not told
};

struct FurtherFacts {
  std::optional<RunFacts> run;
  std::string quantisation;       // "gptq, 4 bits, groups of 128"; empty: none is told
  int64_t quantisation_bits = 0;  // that this says; 0: none
  PredictionLayers prediction;
  TrainingFacts training;
  bool by_ferry = false;  // ferry's manifest lies beside the files
};

/// `given` is the path as the user gave it. Reads names of files, and config.json.
FurtherFacts further_facts(const Checkpoint& checkpoint, const ModelSummary& model,
                           const std::string& given);

/// "3: 100, 200, 300 (the tracker names 300)".
std::string to_text(const RunFacts& run);
/// "step 30 of 90, epoch 1.5 (Trainer)"; empty where no step is told.
std::string to_text(const TrainingFacts& training);
/// "optimizer.pt, rng_state_*.pth (8), global_step10/".
std::string to_text(const std::vector<TrainingPart>& parts);
/// "2.10 million parameters in enorm, hnorm, eh_proj".
std::string to_text(const PredictionLayers& prediction);

}  // namespace ferry::tool
