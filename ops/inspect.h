// What a checkpoint is and holds: format, layout, model, sizes, and values where asked for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/summary.h"

namespace ferry {

/// Iterations of the run folder that was given.
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

/// How far training was when the checkpoint was saved, and what its program left next to the model.
struct TrainingFacts {
  TrainingFolder folder;
  std::string program;  // "Trainer", "Lightning 2.5.1"; empty: unknown
};

struct FurtherFacts {
  std::optional<RunFacts> run;
  std::string quantisation;       // "gptq, 4 bits, groups of 128"; empty: none
  int64_t quantisation_bits = 0;  // of a weight; 0: unknown
  PredictionLayers prediction;
  TrainingFacts training;
  bool by_ferry = false;  // it has ferry's manifest
};

/// Statistics of a tensor's finite values, computed in double.
struct Statistics {
  double min = 0, max = 0, mean = 0;
  double std = 0;  // of the population
  int64_t finite = 0, nan = 0, infinite = 0;
  std::string problem;  // why there are none ("complex values"); empty: there are
};

struct InspectOptions {
  OpenOptions open = {};
  std::optional<std::string> tensors = {};  // list those that match this pattern
  std::optional<std::string> stats = {};    // read those that match, for statistics of their values
  bool check_masters = false;               // compare fp32 master weights with the weights
  bool args = false;                        // for front ends: print the run's arguments
  bool objects = false;                     // parse stored objects other than tensors
  EngineOptions engine = {};                // of reading values
};

/// Tensors of one role.
struct TensorGroup {
  int64_t tensors = 0;
  int64_t elements = 0;
  uint64_t bytes = 0;
  std::map<std::string, int64_t> dtypes;  // safetensors' spelling -> tensors
};

struct InspectReport {
  std::shared_ptr<const Checkpoint> checkpoint;  // owns the entries below
  InspectOptions options;
  ModelSummary model;
  FurtherFacts further;
  ParameterCount count;
  AdapterSummary adapter;
  TensorGroup model_tensors, adapter_tensors, optimizer_tensors, training_tensors;
  uint64_t file_bytes = 0;
  std::vector<const Entry*> listed;                             // options.tensors
  std::vector<std::pair<const Entry*, Statistics>> statistics;  // options.stats
  int64_t masters = 0;                     // fp32, that were compared: options.check_masters
  std::vector<MasterMismatch> mismatches;  // of these
  std::vector<std::pair<std::string, LoadedValue>> objects;  // options.objects
  std::vector<std::string> object_problems;                  // what could not be parsed, and why
  ModelCheck check;  // of a Hugging Face model against its config.json
};

/// Opens `path`, which may be anything that open_checkpoint() opens, and reads what the options ask
/// for: names and sizes only, unless they ask for values. not_found when a pattern matches nothing;
/// otherwise as open_checkpoint(). A model that is not recognised is not an error.
InspectReport inspect(const std::string& path, const InspectOptions& options = {});

/// The same for a checkpoint that is open; the report says nothing about the run around it.
InspectReport inspect(std::shared_ptr<const Checkpoint> checkpoint,
                      const InspectOptions& options = {});

/// Tensors whose names match, in the catalog's order; not_found when there are none.
std::vector<const Entry*> matching(const Catalog& catalog, const std::string& pattern);

}  // namespace ferry
