// What `ferry inspect` tells, gathered before a line of it is printed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/hugging_face/parameter_count.h"
#include "ckpt/megatron/optimizer/masters/compare.h"
#include "convert/adapters.h"
#include "convert/check/model_check.h"
#include "convert/convert.h"
#include "tools/inspect/further_facts.h"
#include "tools/inspect/statistics.h"

namespace ferry::tool {

struct InspectOptions {
  std::optional<std::string> tensors;  // list those that match this pattern
  std::optional<std::string> stats;    // values of those that match
  std::string given;                   // the path as the user gave it; empty: not known
  bool check_masters = false;          // hold fp32 masters against weights
  bool args = false;
  bool objects = false;
  uint64_t memory_bytes = uint64_t{512} << 20;
  std::function<void(const Progress&)> progress;  // while values are read
};

/// Tensors of one role.
struct TensorGroup {
  int64_t tensors = 0;
  int64_t elements = 0;
  uint64_t bytes = 0;
  std::map<std::string, int64_t> dtypes;  // safetensors' spelling -> tensors
};

struct InspectReport {
  const Checkpoint* checkpoint = nullptr;
  InspectOptions options;
  ModelSummary model;
  FurtherFacts further;
  ParameterCount count;
  AdapterSummary adapter;
  TensorGroup model_tensors, adapter_tensors, optimizer_tensors, training_tensors;
  uint64_t file_bytes = 0;
  std::vector<const Entry*> listed;  // for --tensors
  std::vector<std::pair<const Entry*, Statistics>> statistics;
  int64_t masters = 0;  // that were held against weights, for --check-masters
  std::vector<MasterMismatch> mismatches;
  std::vector<std::pair<std::string, LoadedValue>> objects;  // for --objects; value none: see below
  ModelCheck check;  // of a Hugging Face model against its config.json
  std::vector<std::string> object_problems;                  // what could not be parsed, and why
};

/// Tensors whose names match, in the catalog's order; not_found when there are none.
std::vector<const Entry*> matching(const Catalog& catalog, const std::string& pattern);

/// Reads what the options ask for. `checkpoint` must outlive the report. not_found when a pattern
/// matches nothing.
InspectReport make_report(const Checkpoint& checkpoint, const InspectOptions& options);

/// What a checkpoint is, by key: "format", "layout", "model", ...; an optimizer's problem too.
/// Names are not made safe to print. Nothing without a value.
std::vector<std::pair<std::string, std::string>> facts(const InspectReport& report);

/// A screenful for people; names are made safe to print.
std::string to_text(const InspectReport& report);

/// One object: format, path, writer, iteration, family, model, parameters, bytes, tensors, objects,
/// layout, args, metadata, optimizer, files, notes, and stats where asked for.
nlohmann::json to_json(const InspectReport& report);

}  // namespace ferry::tool
