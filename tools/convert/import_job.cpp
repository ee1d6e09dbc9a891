#include "tools/convert/import_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/together.h"
#include "ckpt/megatron/args.h"
#include "ckpt/megatron/legacy/write/legacy_writer.h"
#include "ckpt/megatron/torch_dist/torch_dist_writer.h"
#include "tools/output/write_output.h"

namespace ferry::tool {
namespace {

constexpr const char* kTokenizerFolder = "tokenizer";       // where Megatron-LM keeps its own
constexpr uint64_t kMaxTokenizerBytes = uint64_t{1} << 30;  // of one file

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto result = std::filesystem::absolute(path, error);
  return error ? path : result.lexically_normal().string();
}

PlannedOutput plan(RunState state, const ConvertOptions& options, const std::string& folder) {
  if (options.to == ConvertTarget::torch) return plan_legacy(state, {false});
  TorchDistOptions writer;
  writer.release = options.write.release;
  writer.optimizer = ShardedOptimizer::none;
  writer.checkpoint_id = folder;
  writer.zstd = options.write.zstd_level.has_value();
  return plan_torch_dist(std::move(state), writer);
}

// Megatron-LM takes most of the layout from the checkpoint where it is asked to, this it does not.
void say_layout(const ParallelLayout& sizes, const ParallelTarget& wanted,
                std::vector<std::string>& flags) {
  if (std::max({sizes.tensor, sizes.pipeline, sizes.expert}) > 1) {
    flags.push_back("--use-mp-args-from-checkpoint-args");
  }
  const auto say = [&](std::string_view flag, const auto& value) {
    if (value) flags.push_back(fmt::format("{} {}", flag, *value));
  };
  if (sizes.expert_tensor != sizes.tensor) {
    say("--expert-tensor-parallel-size", std::optional(sizes.expert_tensor));
  }
  say("--context-parallel-size", wanted.context);
  say("--decoder-first-pipeline-num-layers", wanted.first_stage_layers);
  say("--decoder-last-pipeline-num-layers", wanted.last_stage_layers);
  say("--pipeline-model-parallel-layout", wanted.stage_letters);
}

// The command line that loads it, as far as the checkpoint does not say it.
std::vector<std::string> loading_flags(const Import& model, const ParallelLayout& sizes,
                                       const ConvertOptions& options) {
  std::vector<std::string> flags = {"--load " + options.target, "--use-checkpoint-args"};
  if (options.to == ConvertTarget::torch) flags.push_back("--ckpt-format torch");
  say_layout(sizes, options.import.layout, flags);
  flags.insert(flags.end(), model.flags.begin(), model.flags.end());
  return flags;
}

ConvertReport describe(const Checkpoint& checkpoint, const Import& model,
                       const ConvertOptions& options, const std::string& folder) {
  ConvertReport report;
  report.source = checkpoint.path;
  report.target = folder;
  report.source_format = name(checkpoint.format);
  report.family = model.family;
  report.tensors = static_cast<int64_t>(model.state.tensors.size());
  report.parameters = model.parameters;
  report.layout = layout_from_args(model.state.args.value);
  report.flags = loading_flags(model, report.layout, options);
  return report;
}

// Tokenizer files stand before the files that make the folder a checkpoint.
void add_tokenizer(const FileSystem& file_system, const Import& model, PlannedOutput& planned) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const CopiedFile& file : model.tokenizer_files) {
    files.emplace_back(join(kTokenizerFolder, file.name),
                       read_file(file_system, file.from, kMaxTokenizerBytes));
  }
  planned.small_files.insert(planned.small_files.begin(), std::make_move_iterator(files.begin()),
                             std::make_move_iterator(files.end()));
}

Checkpoint open_model(const std::shared_ptr<const FileSystem>& file_system,
                      const ConvertOptions& options) {
  Checkpoint checkpoint = open_checkpoint(file_system, options.source, options.open);
  if (checkpoint.format != Format::hugging_face) {
    fail(ErrorKind::invalid,
         "{}: is no Hugging Face model; `ferry reshard` writes checkpoints of Megatron-LM in "
         "another layout or format",
         checkpoint.path);
  }
  return checkpoint;
}

}  // namespace

ConvertReport convert_to_megatron(const ConvertOptions& options) {
  const std::shared_ptr<const FileSystem> file_system = posix_file_system();
  const Output output = {OutputKind::iteration, options.target, {}};
  const std::string folder = output.folder();
  Checkpoint checkpoint;
  ConvertReport report;
  PlannedOutput planned;
  together(*options.write.group, [&] {
    checkpoint = open_model(file_system, options);
    check_output(*file_system, output, checkpoint.path, options.write.overwrite);
    ImportOptions import = options.import;
    import.tokenizer_model = join(absolute(folder), kTokenizerFolder);
    Import model = import_model(checkpoint, import);
    report = describe(checkpoint, model, options, folder);
    planned = plan(std::move(model.state), options, folder);
    prepare(planned, options.write.vouchers);
    add_tokenizer(*file_system, model, planned);
    return std::string();
  });
  report.written = write_output(file_system, output, planned, checkpoint.mark.get(), options.write);
  report.warnings = planned.warnings;
  return report;
}

}  // namespace ferry::tool
