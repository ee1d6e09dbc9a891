#include "ops/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "ckpt/megatron/optimizer/masters/weights.h"
#include "ops/check.h"
#include "ops/convert/check_options.h"
#include "ops/convert/source.h"
#include "ops/convert/to_hugging_face.h"
#include "ops/convert/to_megatron.h"
#include "ops/output/write_output.h"

namespace ferry {
namespace {

// Any tensors, under their own names.
ModelPlan plan_tensors(const Checkpoint& checkpoint, const ConvertOptions& options) {
  SafetensorsExport plain = plan_safetensors(
      checkpoint.catalog, {options.optimizer, options.dtype, options.max_shard_bytes});
  ModelPlan model;
  model.planned.plan = std::move(plain.plan);
  model.count = plain.count;
  if (!plain.index_json.empty()) {
    model.planned.small_files.emplace_back(kSafetensorsIndexName, std::move(plain.index_json));
  }
  if (options.optimizer && !checkpoint.optimizer_problem.empty()) {
    model.planned.warnings.push_back(checkpoint.optimizer_problem);
  }
  return model;
}

Work plan_model_folder(const std::shared_ptr<const FileSystem>& file_system,
                       const ConvertOptions& options, ConvertReport& report) {
  Work work;
  work.output = {OutputKind::model_folder, options.target, {}};
  check_output(*file_system, work.output, options.source, options.write.overwrite);
  Checkpoint checkpoint = open_source(file_system, options.source, options);
  if (options.from_masters) use_masters_as_weights(checkpoint);
  ModelPlan model = options.to == ConvertTarget::hugging_face
                        ? plan_hugging_face(checkpoint, options)
                        : plan_tensors(checkpoint, options);
  report.source = checkpoint.path;
  report.target = options.target;
  report.source_format = name(checkpoint.format);
  report.iteration = checkpoint.iteration;
  report.family = model.family;
  report.tensors = static_cast<int64_t>(model.planned.plan.target.entries.size());
  report.parameters = model.count.parameters;
  report.integers = model.count.integers;
  work.planned = std::move(model.planned);
  return work;
}

// What programs would trip over in the folder that was written, by its headers. Of warnings only
// those about names, as the plan has given the others or the source is the same.
void check_written(const std::string& target, std::vector<std::string>& warnings) {
  try {
    for (const Finding& finding : check(target).findings) {
      if (!finding.is_problem && finding.kind != "names") continue;
      const bool is_said = std::ranges::any_of(warnings, [&](const std::string& warning) {
        return warning.find(finding.what) != warning.npos;
      });
      if (!is_said) {
        warnings.push_back(
            fmt::format("of the folder that was written: {}; {}", finding.what, finding.advice));
      }
    }
  } catch (const Error& error) {
    warnings.push_back(
        fmt::format("the folder that was written could not be checked: {}", error.what()));
  }
}

}  // namespace

ConvertReport convert(const ConvertOptions& options) {
  check_options(options);
  const bool megatron =
      options.to == ConvertTarget::torch_dist || options.to == ConvertTarget::torch;
  ConvertReport report;
  const auto plan = [&](const std::shared_ptr<const FileSystem>& file_system) {
    return megatron ? plan_for_megatron(file_system, options, report)
                    : plan_model_folder(file_system, options, report);
  };
  report.written = with_paths({options.source, options.target, options.config_folder},
                              [&] { return carry_out(options.write, plan, report.warnings); });
  const bool is_written = !options.write.dry_run && options.write.group->rank() == 0;
  if (is_written && options.to == ConvertTarget::hugging_face) {
    check_written(options.target, report.warnings);
  }
  return report;
}

}  // namespace ferry
