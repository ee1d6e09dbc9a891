#include "tools/convert/convert_job.h"

#include <chrono>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "ckpt/group/group_run.h"
#include "ckpt/group/together.h"
#include "ckpt/integrity/plan_manifest.h"
#include "ckpt/io/staging.h"
#include "tools/convert/import_job.h"
#include "tools/output/target_folder.h"
#include "tools/terminal/interrupt.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kMaxCopiedBytes = uint64_t{1} << 30;  // a tokenizer's file

std::string_view spelling(ConvertTarget to) {
  switch (to) {
    case ConvertTarget::hugging_face:
      return "hf";
    case ConvertTarget::safetensors:
      return "safetensors";
    case ConvertTarget::torch_dist:
      return "torch_dist";
    case ConvertTarget::torch:
      return "torch";
  }
  return "";
}

// All that will be written, whatever it was made from.
struct Job {
  Plan plan;
  std::vector<std::pair<std::string, std::string>> small_files;
  std::vector<CopiedFile> copied;
  std::string family;
  std::vector<std::string> warnings;
  int64_t parameters = 0;
};

// Options that only some targets heed.
void check_options(const ConvertOptions& options) {
  const ConvertTarget to = options.to;
  const bool hf = to == ConvertTarget::hugging_face, plain = to == ConvertTarget::safetensors;
  const bool megatron = !hf && !plain;
  const ExportOptions& model = options.model;
  struct Option {
    std::string_view flag;
    bool given;
    bool heeded;
  };
  const Option all[] = {
      {"--family", model.family.has_value(), !plain},
      {"--vocab-size", model.vocab_size.has_value(), hf},
      {"--keep-padding", model.keep_padding, hf},
      {"--tokenizer", !model.tokenizer_folder.empty(), !plain},
      {"--optimizer", options.optimizer, plain},
      {"--raw", options.open.raw, plain},
      {"--iteration", !options.open.iteration.empty(), !megatron},
      {"--drop-unknown", options.import.drop_unknown, megatron},
      {"--core-release", options.release != kNewestCore, to == ConvertTarget::torch_dist},
      {"--compress", options.zstd_level.has_value(), to == ConvertTarget::torch_dist},
      {"a layout", options.import.layout != ParallelTarget(), megatron},
      {"--make-vocab-size-divisible-by",
       options.import.make_vocab_size_divisible_by != ImportOptions().make_vocab_size_divisible_by,
       megatron}};
  for (const Option& option : all) {
    if (option.given && !option.heeded) {
      fail(ErrorKind::invalid, "{} means nothing with --to {}", option.flag, spelling(to));
    }
  }
  if (!plain && model.dtype && size_bytes(*model.dtype) == 1) {
    fail(ErrorKind::invalid,
         "--dtype {} means nothing with --to {}: 8-bit floats need scales, which are not made",
         torch_name(*model.dtype), spelling(to));
  }
}

Job make_job(const Checkpoint& checkpoint, const ConvertOptions& options) {
  Job job;
  if (options.to == ConvertTarget::hugging_face) {
    Export model = plan_export(checkpoint, options.model);
    job.plan = std::move(model.plan);
    job.small_files = std::move(model.small_files);
    job.copied = std::move(model.tokenizer_files);
    job.family = std::move(model.family);
    job.warnings = std::move(model.warnings);
    job.parameters = model.parameters;
    return job;
  }
  SafetensorsExport plain = plan_safetensors(
      checkpoint.catalog, {options.optimizer, options.model.dtype, options.model.max_shard_bytes});
  job.plan = std::move(plain.plan);
  job.parameters = plain.parameters;
  if (!plain.index_json.empty()) {
    job.small_files.emplace_back(kSafetensorsIndexName, std::move(plain.index_json));
  }
  if (options.optimizer && !checkpoint.optimizer_problem.empty()) {
    job.warnings.push_back(checkpoint.optimizer_problem);
  }
  return job;
}

ConvertReport describe(const Checkpoint& checkpoint, const Job& job,
                       const ConvertOptions& options) {
  ConvertReport report;
  report.source = checkpoint.path;
  report.target = options.target;
  report.source_format = name(checkpoint.format);
  report.iteration = checkpoint.iteration;
  report.family = job.family;
  report.tensors = static_cast<int64_t>(job.plan.target.entries.size());
  report.parameters = job.parameters;
  for (const FileInfo& file : job.plan.target.files)
    report.files.emplace_back(file.path, file.bytes);
  for (const auto& [name, content] : job.small_files)
    report.files.emplace_back(name, content.size());
  for (const CopiedFile& file : job.copied) report.files.emplace_back(file.name, file.bytes);
  for (const auto& [name, bytes] : report.files) report.bytes += bytes;
  report.warnings = job.warnings;
  report.dry_run = options.dry_run;
  return report;
}

void add_small_files(const FileSystem& file_system, StagedFolder& staged, const Job& job,
                     const std::vector<Digest>& digests, const VoucherOptions& options,
                     const EngineOptions& engine) {
  Manifest manifest;
  if (options.manifest) manifest = manifest_of(job.plan, digests);
  const auto write_file = [&](const std::string& name, const std::string& content) {
    staged.write_file(name, content);
    manifest.add_file(name, content);
  };
  for (const auto& [name, content] : job.small_files) write_file(name, content);
  for (const CopiedFile& file : job.copied) {
    write_file(file.name, read_file(file_system, file.from, kMaxCopiedBytes));
  }
  const auto last = vouchers(options, std::move(manifest), file_system, staged.path(), engine);
  for (const auto& [name, content] : last) staged.write_file(name, content);
}

// Rank 0 stages, all write, rank 0 commits.
void write(const std::shared_ptr<const FileSystem>& file_system, const Checkpoint& checkpoint,
           const Job& job, const ConvertOptions& options) {
  Group& group = *options.group;
  const bool leads = group.rank() == 0;
  const InterruptScope interrupt;
  EngineOptions engine = options.engine;
  engine.cancel = interrupt.flag();
  std::optional<StagedFolder> staged;
  const std::string folder = together(group, [&] {
    if (leads) staged.emplace(file_system, options.target, options.overwrite);
    return leads ? staged->path() : std::string();
  })[0];
  const std::vector<Digest> digests = run_together(job.plan, *file_system, folder, group, engine);
  together(group, [&] {
    if (!leads) return std::string();
    add_small_files(*file_system, *staged, job, digests, options.vouchers, engine);
    interrupt.check();
    if (checkpoint.mark) checkpoint.mark->check();
    staged->commit();
    return std::string();
  });
}

}  // namespace

ConvertReport convert(const ConvertOptions& options) {
  check_options(options);
  if (options.to == ConvertTarget::torch_dist || options.to == ConvertTarget::torch) {
    return convert_to_megatron(options);
  }
  const std::shared_ptr<const FileSystem> file_system = posix_file_system();
  const auto is_model = [&](const std::string& folder) {
    return is_hugging_face_folder(*file_system, folder);
  };
  const TargetFolder place = {options.source, options.target, options.overwrite, is_model,
                              "converted model"};
  Checkpoint checkpoint;
  Job job;
  together(*options.group, [&] {
    check_target(*file_system, place);
    checkpoint = open_checkpoint(file_system, options.source, options.open);
    job = make_job(checkpoint, options);
    if (options.vouchers.manifest) complete_items(job.plan);
    check(job.plan);
    return std::string();
  });
  ConvertReport report = describe(checkpoint, job, options);
  if (options.dry_run) return report;
  const auto start = std::chrono::steady_clock::now();
  write(file_system, checkpoint, job, options);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace ferry::tool
