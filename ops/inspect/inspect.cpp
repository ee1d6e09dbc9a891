#include "ops/inspect.h"

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/base/glob.h"
#include "ckpt/format/hugging_face/parameter_count.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/megatron/optimizer/masters/compare.h"
#include "ckpt/megatron/optimizer/masters/remainders.h"
#include "convert/adapters.h"
#include "convert/check/names.h"
#include "convert/state_dict/state_dict.h"
#include "ops/inspect/further_facts.h"
#include "ops/inspect/statistics.h"

namespace ferry {
namespace {

uint64_t stored_bytes(const Entry& entry) {
  const auto element_bytes = static_cast<uint64_t>(size_bytes(entry.stored_dtype()));
  return checked_multiply(static_cast<uint64_t>(entry.elements()), element_bytes, entry.name);
}

void add(TensorGroup& group, const Entry& entry) {
  ++group.tensors;
  group.elements = checked_add(group.elements, entry.elements(), "size of the checkpoint");
  group.bytes = checked_add(group.bytes, stored_bytes(entry), "size of the checkpoint");
  ++group.dtypes[std::string(safetensors_name(entry.dtype))];
}

TensorGroup& group_of(const Entry& entry, ElementKind kind, InspectReport& report) {
  if (entry.role == Role::optimizer) return report.optimizer_tensors;
  if (kind == ElementKind::training) return report.training_tensors;
  return kind == ElementKind::adapter ? report.adapter_tensors : report.model_tensors;
}

void compute_statistics(InspectReport& report) {
  const Catalog& catalog = report.checkpoint->catalog;
  const EngineOptions& engine = report.options.engine;
  const std::vector<const Entry*> entries = matching(catalog, *report.options.stats);
  Progress progress;
  for (const Entry* entry : entries) progress.bytes_total += static_cast<uint64_t>(entry->bytes());
  for (const Entry* entry : entries) {
    const auto read = [&](uint64_t bytes) {
      if (engine.cancel && *engine.cancel) fail(ErrorKind::cancelled, "stopped on request");
      progress.bytes_done += bytes;
      if (engine.progress) engine.progress(progress);
    };
    report.statistics.emplace_back(entry, statistics(catalog, *entry, engine.memory_bytes, read));
  }
}

void check_masters(InspectReport& report) {
  const Catalog& catalog = report.checkpoint->catalog;
  const std::vector<MasterPair> pairs = master_pairs(catalog);
  if (pairs.empty()) {
    fail(ErrorKind::invalid, "{}: {}, which {} would compare with the weights",
         report.checkpoint->path,
         has_remainders(catalog) ? "its masters are remainders of the weights, and any fits: there "
                                   "are not fp32 masters"
                                 : "holds no fp32 masters of the model's tensors",
         option("check_masters"));
  }
  report.masters = static_cast<int64_t>(pairs.size());
  report.mismatches = compare_masters(catalog, pairs, report.options.engine);
}

// One object that cannot be parsed must not hide the others.
void read_objects(InspectReport& report) {
  const Catalog& catalog = report.checkpoint->catalog;
  for (const Object& object : catalog.objects) {
    try {
      report.objects.emplace_back(object.name, read_object(catalog, object));
    } catch (const Error& error) {
      report.object_problems.push_back(fmt::format("object {}: {}", object.name, error.what()));
    }
  }
}

InspectReport report_on(std::shared_ptr<const Checkpoint> opened, const InspectOptions& options,
                        const std::string& given) {
  const Checkpoint& checkpoint = *opened;
  InspectReport report;
  report.checkpoint = std::move(opened);
  report.options = options;
  report.model = recognise(checkpoint);
  report.further = further_facts(checkpoint, report.model, given);
  // What config.json counts of them and no file holds is none.
  if (report.further.prediction.tensors == 0) report.model.mtp_layers = 0;
  const std::vector<AdapterTensor> adapter = adapter_tensors(checkpoint.catalog);
  report.adapter = summarise(checkpoint.catalog, adapter);
  std::vector<CountedTensor> kinds =
      element_kinds(checkpoint.catalog, report.further.quantisation_bits);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const bool of_adapter = adapter[i].part != AdapterPart::none;
    if (of_adapter && kinds[i].kind != ElementKind::training) kinds[i].kind = ElementKind::adapter;
    const Entry& entry = checkpoint.catalog->entries[i];
    add(group_of(entry, kinds[i].kind, report), entry);
  }
  report.check = checkpoint.format == Format::hugging_face ? check_model(checkpoint)
                                                           : check_state_dict(checkpoint);
  report.count = count_parameters(checkpoint.catalog, kinds);
  for (const FileInfo& file : checkpoint.catalog->files) report.file_bytes += file.bytes;
  if (options.tensors) report.listed = matching(checkpoint.catalog, *options.tensors);
  if (options.stats) compute_statistics(report);
  if (options.check_masters) check_masters(report);
  if (options.objects) read_objects(report);
  return report;
}

}  // namespace

std::vector<const Entry*> matching(const Catalog& catalog, const std::string& pattern) {
  std::vector<const Entry*> found;
  for (const Entry& entry : catalog.entries) {
    if (glob_matches(pattern, entry.name)) found.push_back(&entry);
  }
  if (found.empty()) {
    fail(ErrorKind::not_found,
         "no tensor matches '{}'; inspect lists all {} ({}; '*' matches any run of characters)",
         pattern, catalog.entries.size(), option("tensors"));
  }
  return found;
}

InspectReport inspect(const std::string& path, const InspectOptions& options) {
  auto checkpoint =
      std::make_shared<const Checkpoint>(open_model(posix_file_system(), path, options.open));
  return with_paths({path}, [&] { return report_on(std::move(checkpoint), options, path); });
}

InspectReport inspect(std::shared_ptr<const Checkpoint> checkpoint, const InspectOptions& options) {
  return report_on(std::move(checkpoint), options, {});
}

}  // namespace ferry
