#include "ops/convert/check_options.h"

#include <fmt/format.h>

#include <string_view>

#include "ckpt/base/error.h"

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
  struct Option {
    std::string_view name;
    bool given;
    bool used;  // by this target
  };
  const Option all[] = {
      {"family", options.family.has_value(), !plain},
      {"ignored_members", !options.ignored_members.empty(), !plain},
      {"vocab_size", options.vocab_size.has_value(), hf},
      {"cut_tokens", options.cut_tokens, hf},
      {"keep_padding", options.keep_padding, hf},
      {"quantise", !options.quantise.empty(), hf},
      {"fill_from", !options.fill_from.empty(), hf},
      {"tokenizer_folder", !options.tokenizer_folder.empty(), !plain},
      {"max_shard_bytes", options.max_shard_bytes != ConvertOptions::kShardBytes, !megatron},
      {"as_is", options.as_is, hf},
      {"optimizer", options.optimizer, !hf},
      {"raw", options.open.raw, plain},
      {"from_masters", options.from_masters, !megatron},
      {"drop_unknown", options.drop_unknown, !plain},
      {"config_folder", !options.config_folder.empty(), !plain},
      {"only", !options.only.empty(), !plain},
      {"renames", !options.renames.empty(), !plain},
      {"base_only", options.base_only, !plain},
      {"release", options.write.release != kNewestCore, to == ConvertTarget::torch_dist},
      {"zstd_level", options.write.zstd_level.has_value(), to == ConvertTarget::torch_dist},
      {"layout", options.layout != ParallelTarget(), megatron},
      {"make_vocab_size_divisible_by",
       options.make_vocab_size_divisible_by != ConvertOptions::kVocabularyDivisor, megatron}};
  for (const Option& each : all) {
    if (each.given && !each.used) {
      fail(ErrorKind::invalid, "{} cannot be used with {}", option(each.name),
           option("to", spelling(to)));
    }
  }
  if (options.cut_tokens && !options.vocab_size) {
    fail(ErrorKind::invalid, "{} needs {}", option("cut_tokens"), option("vocab_size"));
  }
  if (!plain && options.dtype && size_bytes(*options.dtype) == 1) {
    fail(ErrorKind::invalid, "{} cannot be used with {}: 8-bit floats need scales{}",
         option("dtype", torch_name(*options.dtype)), option("to", spelling(to)),
         hf ? fmt::format("; {} makes them", option("quantise", "fp8"))
            : ", which Megatron-LM's formats have not");
  }
  if (options.as_is && (options.dtype || !options.quantise.empty() || !options.fill_from.empty() ||
                        options.base_only)) {
    fail(ErrorKind::invalid, "{} copies tensors; it excludes {}, {}, {} and {}", option("as_is"),
         option("dtype"), option("quantise"), option("fill_from"), option("base_only"));
  }
  if (!options.quantise.empty() && options.write.group->size() > 1) {
    fail(ErrorKind::invalid, "{} is done by one process, not by {}", option("quantise"),
         options.write.group->size());
  }
}

}  // namespace ferry
