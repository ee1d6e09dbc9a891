#include "ckpt/open_optimizer.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/optimizer_facts.h"
#include "ckpt/format/torch/torch_file.h"
#include "ckpt/io/file_system.h"

namespace ferry {
namespace {

constexpr std::string_view kOptimizer = "optimizer.";

// N of "pytorch_model_fsdp_N" and "pytorch_model_fsdp_N.bin"; 0 without a number.
std::string number_in(std::string_view part) {
  if (part.ends_with(".bin")) part.remove_suffix(4);
  size_t begin = part.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(part[begin - 1])) != 0) --begin;
  return begin == part.size() ? "0" : std::string(part.substr(begin));
}

// Appends files and entries to the model's, and renumbers their files.
void append(Catalog& to, Catalog from) {
  std::unordered_set<std::string_view> names;
  for (const Entry& entry : to.entries) names.insert(entry.name);
  for (const Entry& entry : from.entries) {
    if (names.contains(entry.name)) {
      fail(ErrorKind::invalid, "tensor {} is in both the model and the optimizer", entry.name);
    }
  }
  const auto first = static_cast<uint32_t>(to.files.size());
  for (FileInfo& file : from.files) to.files.push_back(std::move(file));
  for (Entry& entry : from.entries) {
    for (Chunk& chunk : entry.chunks) chunk.extent.file += first;
    entry.role = Role::optimizer;
    to.entries.push_back(std::move(entry));
  }
  for (Object& object : from.objects) {
    object.extent.file += first;
    to.objects.push_back(std::move(object));
  }
  if (!to.locator) to.locator = std::move(from.locator);
}

// The paths of both: which path of the state dict a key stands for.
LoadedValue joined_paths(const Value& model, const Value& optimizer) {
  Draft draft;
  const Value all = draft.dict();
  for (const Value* paths : {&model, &optimizer}) {
    for (size_t i = 0; i < paths->pair_count(); ++i) {
      const auto key = paths->pair_key(i).string();
      if (key) draft.add(all, draft.string(std::string(*key)), draft.copy(paths->pair_value(i)));
    }
  }
  return std::move(draft).finish(all);
}

void add_dcp(Checkpoint& model, const std::string& folder) {
  DcpCheckpoint optimizer = open_dcp(model.catalog->file_system, folder);
  const Value paths = optimizer.metadata ? optimizer.metadata->root().get("planner_data") : Value();
  LoadedValue joined = joined_paths(model.paths.value, paths);
  append(model.catalog.edit(), std::move(optimizer.catalog));
  model.paths = std::move(joined);
}

void add_file(Checkpoint& model, const std::string& path) {
  Catalog catalog = open_torch_file(model.catalog->file_system, path);
  const auto file = model.catalog->file_system->open(path);
  OptimizerFacts facts = read_optimizer_facts(read_torch_file(*file), *file);
  for (Entry& entry : catalog.entries) entry.name.insert(0, kOptimizer);
  catalog.objects.clear();  // the groups have been read
  append(model.catalog.edit(), std::move(catalog));
  model.param_groups = std::move(facts.param_groups);
  model.optimizer_steps = facts.steps;
}

}  // namespace

void add_optimizer_beside(Checkpoint& model, const std::string& folder, const std::string& part) {
  const FileSystem& files = *model.catalog->file_system;
  const std::string number = number_in(part);
  const std::string parts = join(folder, "optimizer_" + number);
  std::vector<std::string> single = {parts + ".bin"};
  if (number == "0") single.push_back(join(folder, "optimizer.bin"));
  const auto file = std::ranges::find_if(
      single, [&](const std::string& path) { return files.status(path).kind == PathKind::file; });
  if (files.status(parts).kind == PathKind::folder) {
    add_optimizer_part(model, parts);
  } else if (file != single.end()) {
    add_optimizer_part(model, *file);
  }
}

void add_optimizer_part(Checkpoint& model, const std::string& path) {
  try {
    if (model.catalog->file_system->status(path).kind == PathKind::folder) {
      add_dcp(model, path);
    } else {
      add_file(model, path);
    }
    model.optimizer = OptimizerLayout::plain;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal || error.kind() == ErrorKind::io) throw;
    model.optimizer_problem = error.what();
    if (error.kind() != ErrorKind::unsupported) model.damage.push_back(error.what());
    model.optimizer_unsupported = error.kind() == ErrorKind::unsupported;
  }
}

}  // namespace ferry
