// What `ferry inspect` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ops/inspect.h"

namespace ferry::tool {

/// What a checkpoint is, by key: "format", "layout", "model", ...; an optimizer's problem too.
/// Names are not made safe to print. Nothing without a value.
std::vector<std::pair<std::string, std::string>> facts(const InspectReport& report);

/// A screenful for people; names are made safe to print.
std::string to_text(const InspectReport& report);

/// One object: format, path, writer, iteration, family, model, parameters, bytes, tensors, objects,
/// layout, args, metadata, optimizer, files, notes, and stats where asked for.
nlohmann::json to_json(const InspectReport& report);

/// "3: 100, 200, 300 (the tracker names 300)".
std::string to_text(const RunFacts& run);
/// "step 30 of 90, epoch 1.5 (Trainer)"; empty where no step is known.
std::string to_text(const TrainingFacts& training);
/// "optimizer.pt, rng_state_*.pth (8), global_step10/".
std::string to_text(const std::vector<TrainingPart>& parts);
/// "2.10 million parameters in enorm, hnorm, eh_proj".
std::string to_text(const PredictionLayers& prediction);

}  // namespace ferry::tool
