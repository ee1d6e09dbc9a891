#include "ops/convert/check_options.h"

#include <fmt/format.h>

#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/base/option_name.h"

namespace ferry {
namespace {

std::string_view spelling(ConvertTarget to) {
  switch (to) {
    case ConvertTarget::hugging_face:
      return "hugging_face";
    case ConvertTarget::safetensors:
      return "safetensors";
    case ConvertTarget::torch_dist:
      return "torch_dist";
    case ConvertTarget::torch:
      return "torch";
  }
  return "";
}

}  // namespace

void check_options(const ConvertOptions& options) {
  const ConvertTarget to = options.to;
  const bool hf = to == ConvertTarget::hugging_face, plain = to == ConvertTarget::safetensors;
  const bool megatron = !hf && !plain;
  const ExportOptions& model = options.model;
  struct Option {
    std::string_view name;
    bool given;
    bool used;  // by this target
  };
  const Option all[] = {
      {"family", model.family.has_value(), !plain},
      {"ignored_members", !options.import.ignored_members.empty(), !plain},
      {"vocab_size", model.vocab_size.has_value(), hf},
      {"cut_tokens", model.cut_tokens, hf},
      {"keep_padding", model.keep_padding, hf},
      {"quantise_fp8", model.quantise_fp8, hf},
      {"fill_from", !options.fill_from.empty(), hf},
      {"tokenizer_folder", !model.tokenizer_folder.empty(), !plain},
      {"max_shard_bytes", model.max_shard_bytes != ExportOptions().max_shard_bytes, !megatron},
      {"as_is", model.as_is, hf},
      {"optimizer", options.optimizer, !hf},
      {"raw", options.open.raw, plain},
      {"from_masters", options.from_masters, !megatron},
      {"drop_unknown", options.import.drop_unknown, !plain},
      {"config_folder", !options.config_folder.empty(), !plain},
      {"only", !options.only.empty(), !plain},
      {"renames", !options.renames.empty(), !plain},
      {"base_only", options.base_only, !plain},
      {"release", options.write.release != kNewestCore, to == ConvertTarget::torch_dist},
      {"zstd_level", options.write.zstd_level.has_value(), to == ConvertTarget::torch_dist},
      {"layout", options.import.layout != ParallelTarget(), megatron},
      {"make_vocab_size_divisible_by",
       options.import.make_vocab_size_divisible_by != ImportOptions().make_vocab_size_divisible_by,
       megatron}};
  for (const Option& each : all) {
    if (each.given && !each.used) {
      fail(ErrorKind::invalid, "{} cannot be used with {}", option(each.name),
           option("to", spelling(to)));
    }
  }
  if (model.cut_tokens && !model.vocab_size) {
    fail(ErrorKind::invalid, "{} needs {}", option("cut_tokens"), option("vocab_size"));
  }
  if (!plain && model.dtype && size_bytes(*model.dtype) == 1) {
    fail(ErrorKind::invalid, "{} cannot be used with {}: 8-bit floats need scales{}",
         option("dtype", torch_name(*model.dtype)), option("to", spelling(to)),
         hf ? fmt::format("; {} makes them", option("quantise_fp8", "true"))
            : ", which Megatron-LM's formats have not");
  }
  if (model.as_is &&
      (model.dtype || model.quantise_fp8 || !options.fill_from.empty() || options.base_only)) {
    fail(ErrorKind::invalid, "{} copies tensors; it excludes {}, {}, {} and {}", option("as_is"),
         option("dtype"), option("quantise_fp8"), option("fill_from"), option("base_only"));
  }
  if (model.quantise_fp8 && options.write.group->size() > 1) {
    fail(ErrorKind::invalid, "{} is done by one process, not by {}", option("quantise_fp8"),
         options.write.group->size());
  }
}

}  // namespace ferry
