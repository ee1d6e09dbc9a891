#include "tools/convert/convert_job.h"

#include <chrono>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "ckpt/group/together.h"
#include "tools/convert/import_job.h"
#include "tools/output/run_output.h"
#include "tools/output/target_folder.h"

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
  PlannedOutput planned;  // without the copied files
  std::vector<CopiedFile> copied;
  std::string family;
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
    job.planned.plan = std::move(model.plan);
    job.planned.small_files = std::move(model.small_files);
    job.copied = std::move(model.tokenizer_files);
    job.family = std::move(model.family);
    job.planned.warnings = std::move(model.warnings);
    job.parameters = model.parameters;
    return job;
  }
  SafetensorsExport plain = plan_safetensors(
      checkpoint.catalog, {options.optimizer, options.model.dtype, options.model.max_shard_bytes});
  job.planned.plan = std::move(plain.plan);
  job.parameters = plain.parameters;
  if (!plain.index_json.empty()) {
    job.planned.small_files.emplace_back(kSafetensorsIndexName, std::move(plain.index_json));
  }
  if (options.optimizer && !checkpoint.optimizer_problem.empty()) {
    job.planned.warnings.push_back(checkpoint.optimizer_problem);
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
  report.tensors = static_cast<int64_t>(job.planned.plan.target.entries.size());
  report.parameters = job.parameters;
  report.files = files_of(job.planned);
  for (const CopiedFile& file : job.copied) report.files.emplace_back(file.name, file.bytes);
  for (const auto& [name, bytes] : report.files) report.bytes += bytes;
  report.warnings = job.planned.warnings;
  report.dry_run = options.dry_run;
  return report;
}

void add_copied_files(const FileSystem& file_system, Job& job) {
  for (const CopiedFile& file : job.copied) {
    job.planned.small_files.emplace_back(file.name,
                                         read_file(file_system, file.from, kMaxCopiedBytes));
  }
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
                              "converted model", FolderContent::model};
  Checkpoint checkpoint;
  Job job;
  ConvertReport report;
  together(*options.group, [&] {
    check_target(*file_system, place);
    checkpoint = open_checkpoint(file_system, options.source, options.open);
    job = make_job(checkpoint, options);
    prepare(job.planned, options.vouchers);
    report = describe(checkpoint, job, options);
    if (!options.dry_run) add_copied_files(*file_system, job);
    return std::string();
  });
  if (options.dry_run) return report;
  const auto start = std::chrono::steady_clock::now();
  write_folder(file_system, options.target, options.overwrite, job.planned,
               {options.engine, options.vouchers, checkpoint.mark.get(), {}, options.group});
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace ferry::tool
