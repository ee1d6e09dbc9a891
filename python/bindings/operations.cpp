// convert(), reshard(), verify() and the others, with their options as keywords.
#include "python/bindings/operations.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "ckpt/base/size_text.h"
#include "convert/export/quantise.h"
#include "estimate/estimate.h"
#include "ops/check.h"
#include "ops/convert.h"
#include "ops/diff.h"
#include "ops/inspect.h"
#include "ops/prune.h"
#include "ops/reshard.h"
#include "ops/verify.h"
#include "python/bindings/bindings.h"
#include "python/bindings/keywords.h"
#include "python/bindings/running.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

#define MEMBER(path) FERRY_MEMBER(Options, path)
#define ITERATION(path) #path, [](Options & options) -> std::string& { return options.path; }

template <typename Options>
void add_write_options(Keywords<Options>& keywords) {
  keywords.add(MEMBER(write.release))
      .add(MEMBER(write.zstd_level))
      .add(MEMBER(write.overwrite))
      .add(MEMBER(write.dry_run))
      .add(MEMBER(write.integrity.manifest))
      .add(MEMBER(write.integrity.sha256))
      .add(MEMBER(write.engine.memory_bytes), "memory")
      .add_size(MEMBER(write.engine.threads))
      .add(MEMBER(write.group));
}

template <typename Options>
void add_layout(Keywords<Options>& keywords) {
  keywords.add(MEMBER(layout.tensor))
      .add(MEMBER(layout.pipeline))
      .add(MEMBER(layout.virtual_pipeline))
      .add(MEMBER(layout.expert))
      .add(MEMBER(layout.expert_tensor))
      .add(MEMBER(layout.data))
      .add(MEMBER(layout.context))
      .add(MEMBER(layout.first_stage_layers))
      .add(MEMBER(layout.last_stage_layers))
      .add(MEMBER(layout.stage_letters))
      .add(MEMBER(layout.embedding_is_a_layer))
      .add(MEMBER(layout.loss_is_a_layer));
}

Words<std::string> quantised_words() {
  Words<std::string> words;
  for (const std::string_view form : quantised_forms()) words.emplace_back(form.data(), form);
  return words;
}

}  // namespace

Keywords<ConvertOptions> convert_keywords() {
  using Options = ConvertOptions;
  Keywords<Options> keywords;
  keywords.add(MEMBER(source))
      .add(MEMBER(target))
      .add_words(MEMBER(to), Words<ConvertTarget>{{"hf", ConvertTarget::hugging_face},
                                                  {"safetensors", ConvertTarget::safetensors},
                                                  {"torch_dist", ConvertTarget::torch_dist},
                                                  {"torch", ConvertTarget::torch}})
      .add_iteration(ITERATION(open.iteration))
      .add(MEMBER(open.raw))
      .add(MEMBER(family))
      .add(MEMBER(dtype))
      .add(MEMBER(from_masters))
      .add(MEMBER(optimizer))
      .add(MEMBER(base_only))
      .add(MEMBER(tokenizer_folder))
      .add(MEMBER(ignore_index))
      .add(MEMBER(vocab_size))
      .add(MEMBER(cut_tokens))
      .add(MEMBER(keep_padding))
      .add_words(MEMBER(quantise), quantised_words(), "quantize")
      .add(MEMBER(as_is))
      .add(MEMBER(fill_from))
      .add(MEMBER(max_shard_bytes), "max_shard_size")
      .add(MEMBER(make_vocab_size_divisible_by))
      .add(MEMBER(transformer_engine))
      .add(MEMBER(config_folder))
      .add(MEMBER(only))
      .add(MEMBER(renames))
      .add(MEMBER(drop_unknown))
      .add(MEMBER(ignored_members));
  add_layout(keywords);
  add_write_options(keywords);
  note_spelling("to", "hugging_face", "to", "hf");
  note_spelling("layout", {}, "a layout (tensor, pipeline, ...)", {});
  return keywords;
}

namespace {

Keywords<ReshardOptions> reshard_keywords() {
  using Options = ReshardOptions;
  Keywords<Options> keywords;
  keywords.add(MEMBER(source))
      .add(MEMBER(target))
      .add_iteration(ITERATION(open.iteration))
      .add(MEMBER(open.raw))
      .add_words(MEMBER(to), Words<ReshardFormat>{{"torch_dist", ReshardFormat::torch_dist},
                                                  {"torch", ReshardFormat::torch},
                                                  {"fsdp_dtensor", ReshardFormat::fsdp_dtensor},
                                                  {"dcp", ReshardFormat::dcp}})
      .add_words(MEMBER(optimizer),
                 Words<ReshardOptimizer>{{"as_source", ReshardOptimizer::as_source},
                                         {"fully_reshardable", ReshardOptimizer::fully_reshardable},
                                         {"dp_reshardable", ReshardOptimizer::dp_reshardable},
                                         {"legacy", ReshardOptimizer::legacy},
                                         {"none", ReshardOptimizer::none}})
      .add_words(MEMBER(masters), Words<MasterForm>{{"as_source", MasterForm::as_source},
                                                    {"fp32", MasterForm::fp32},
                                                    {"remainders", MasterForm::remainders}})
      .add_words(MEMBER(model), Words<ModelClass>{{"as_source", ModelClass::as_source},
                                                  {"gpt", ModelClass::gpt},
                                                  {"hybrid", ModelClass::hybrid}})
      .add(MEMBER(repair_masters))
      .add(MEMBER(config_folder))
      .add(MEMBER(vocabulary_divisor))
      .add(MEMBER(transformer_engine))
      .add(MEMBER(dtype))
      .add(MEMBER(only))
      .add(MEMBER(drop))
      .add(MEMBER(renames));
  add_layout(keywords);
  add_write_options(keywords);
  return keywords;
}

Keywords<VerifyOptions> verify_keywords() {
  using Options = VerifyOptions;
  Keywords<Options> keywords;
  keywords.add_iteration(ITERATION(iteration))
      .add_flag(MEMBER(masters), Masters::compared, Masters::not_compared)
      .add(MEMBER(manifests))
      .add(MEMBER(values))
      .add(MEMBER(engine.memory_bytes), "memory")
      .add_size(MEMBER(engine.threads));
  return keywords;
}

Keywords<CheckOptions> check_keywords() {
  using Options = CheckOptions;
  Keywords<Options> keywords;
  keywords
      .add_words(MEMBER(loader), Words<Loader>{{"any", Loader::any},
                                               {"transformers", Loader::transformers},
                                               {"vllm", Loader::vllm},
                                               {"sglang", Loader::sglang}})
      .add(MEMBER(like));
  return keywords;
}

Keywords<SealOptions> seal_keywords() {
  using Options = SealOptions;
  Keywords<Options> keywords;
  keywords.add_iteration(ITERATION(iteration))
      .add(MEMBER(sha256))
      .add(MEMBER(dry_run))
      .add(MEMBER(engine.memory_bytes), "memory")
      .add_size(MEMBER(engine.threads));
  return keywords;
}

Keywords<DiffOptions> diff_keywords() {
  using Options = DiffOptions;
  Keywords<Options> keywords;
  keywords.add(MEMBER(a))
      .add(MEMBER(b))
      .add_iteration(ITERATION(open_a.iteration), "iteration_a")
      .add_iteration(ITERATION(open_b.iteration), "iteration_b")
      .add(MEMBER(open_a.raw), "raw_a")
      .add(MEMBER(open_b.raw), "raw_b")
      .add_size(MEMBER(tolerance.absolute), "tolerance")
      .add_size(MEMBER(tolerance.relative), "relative_tolerance")
      .add(MEMBER(ignore_dtype))
      .add(MEMBER(only))
      .add(MEMBER(drop))
      .add(MEMBER(objects))
      .add_words(MEMBER(order), Words<DiffOrder>{{"catalog", DiffOrder::catalog},
                                                 {"difference", DiffOrder::difference},
                                                 {"size", DiffOrder::size}})
      .add(MEMBER(engine.memory_bytes), "memory")
      .add_size(MEMBER(engine.threads));
  return keywords;
}

Keywords<PruneRunOptions> prune_keywords() {
  using Options = PruneRunOptions;
  Keywords<Options> keywords;
  keywords.add(MEMBER(keep.keep_last))
      .add(MEMBER(keep.keep_every))
      .add(MEMBER(keep.unfinished))
      .add(MEMBER(verify))
      .add(MEMBER(dry_run));
  return keywords;
}

Keywords<InspectOptions> inspect_keywords() {
  using Options = InspectOptions;
  Keywords<Options> keywords;
  keywords.add_iteration(ITERATION(open.iteration))
      .add(MEMBER(open.raw))
      .add(MEMBER(tensors))
      .add(MEMBER(stats))
      .add(MEMBER(check_masters))
      .add(MEMBER(objects))
      .add(MEMBER(engine.memory_bytes), "memory")
      .add_size(MEMBER(engine.threads));
  return keywords;
}

Keywords<EstimateOptions> estimate_keywords() {
  using Options = EstimateOptions;
  Keywords<Options> keywords;
  keywords.add(MEMBER(model))
      .add(MEMBER(arguments))
      .add_size(MEMBER(gpus))
      .add(MEMBER(gpus_per_node))
      .add(MEMBER(gpu_memory_bytes), "gpu_memory")
      .add(MEMBER(gpu))
      .add(MEMBER(bandwidth_bytes), "bandwidth")
      .add(MEMBER(at));
  return keywords;
}

#undef MEMBER
#undef ITERATION

/// Defines `name`(keywords, progress), which calls run(options, progress).
template <typename Options, typename Run>
void define(nb::module_& module, const char* name, const char* signature,
            Keywords<Options> keywords, Run run) {
  module.attr("_options")[name] = keywords.names();
  module.attr("_defaults")[name] = keywords.defaults();
  module.def(
      name,
      [keywords = std::move(keywords), run](nb::dict given, nb::handle progress) {
        Options options;
        keywords.take_all(given, options);
        return run(options, progress);
      },
      nb::arg("options"), nb::arg("progress").none(), nb::sig(signature));
}

std::string take_path(nb::handle path) {
  std::string text;
  take({"path", path}, text);
  return text;
}

/// The same for operations on one path, which is not an option: run(path, options, progress).
template <typename Options, typename Run>
void define_for_path(nb::module_& module, const char* name, const char* signature,
                     Keywords<Options> keywords, Run run) {
  module.attr("_options")[name] = keywords.names();
  module.attr("_defaults")[name] = keywords.defaults();
  module.def(
      name,
      [keywords = std::move(keywords), run](nb::handle path, nb::dict given, nb::handle progress) {
        Options options;
        keywords.take_all(given, options);
        return run(take_path(path), options, progress);
      },
      nb::arg("path").none(), nb::arg("options"), nb::arg("progress").none(), nb::sig(signature));
}

PruneReport prune_watched(const std::string& path, PruneRunOptions& options, nb::handle progress) {
  EngineOptions engine;
  return interruptibly(progress, engine, [&] {
    options.cancel = engine.cancel;
    options.progress = options.verify_progress = engine.progress;
    return prune(path, options);
  });
}

void define_all(nb::module_& module) {
  define(module, "convert",
         "def convert(options: dict[str, typing.Any], progress: typing.Any) -> ConvertReport",
         convert_keywords(), [](ConvertOptions& options, nb::handle progress) {
           return interruptibly(
               progress, options.write.engine, [&] { return convert(options); },
               abort_of(options.write.group));
         });
  define(module, "reshard",
         "def reshard(options: dict[str, typing.Any], progress: typing.Any) -> ReshardReport",
         reshard_keywords(), [](ReshardOptions& options, nb::handle progress) {
           return interruptibly(
               progress, options.write.engine, [&] { return reshard(options); },
               abort_of(options.write.group));
         });
  define(module, "diff",
         "def diff(options: dict[str, typing.Any], progress: typing.Any) -> DiffReport",
         diff_keywords(), [](DiffOptions& options, nb::handle progress) {
           return interruptibly(progress, options.engine, [&] { return diff(options); });
         });
  define(module, "estimate",
         "def estimate(options: dict[str, typing.Any], progress: typing.Any) -> Estimate",
         estimate_keywords(), [](EstimateOptions& options, nb::handle) {
           return abandonably([options] { return estimate(options); });
         });
  define_for_path(
      module, "verify",
      "def verify(path: typing.Any, options: dict[str, typing.Any], progress: typing.Any) -> "
      "VerifyReport",
      verify_keywords(), [](const std::string& path, VerifyOptions& options, nb::handle progress) {
        return interruptibly(progress, options.engine, [&] { return verify(path, options); });
      });
  define_for_path(
      module, "verify_run",
      "def verify_run(path: typing.Any, options: dict[str, typing.Any], progress: typing.Any) -> "
      "RunVerification",
      verify_keywords(), [](const std::string& path, VerifyOptions& options, nb::handle progress) {
        return interruptibly(progress, options.engine, [&] { return verify_run(path, options); });
      });
  define_for_path(
      module, "check",
      "def check(path: typing.Any, options: dict[str, typing.Any], progress: typing.Any) -> "
      "CheckReport",
      check_keywords(), [](const std::string& path, CheckOptions& options, nb::handle) {
        return abandonably([path, options] { return check(path, options); });
      });
  define_for_path(
      module, "seal",
      "def seal(path: typing.Any, options: dict[str, typing.Any], progress: typing.Any) -> "
      "SealReport",
      seal_keywords(), [](const std::string& path, SealOptions& options, nb::handle progress) {
        return interruptibly(progress, options.engine, [&] { return seal(path, options); });
      });
  define_for_path(
      module, "inspect",
      "def inspect(path: typing.Any, options: dict[str, typing.Any], progress: typing.Any) -> "
      "InspectReport",
      inspect_keywords(),
      [](const std::string& path, InspectOptions& options, nb::handle progress) {
        return interruptibly(progress, options.engine, [&] { return inspect(path, options); });
      });
  define_for_path(
      module, "prune",
      "def prune(path: typing.Any, options: dict[str, typing.Any], progress: typing.Any) -> "
      "PruneReport",
      prune_keywords(), prune_watched);
}

}  // namespace

void bind_operations(nb::module_& module) {
  module.attr("_options") = nb::dict();
  module.attr("_defaults") = nb::dict();
  module.def("size_in_bytes", size_in_bytes, nb::arg("text"),
             nb::sig("def size_in_bytes(text: str) -> int | None"));
  define_all(module);
}

}  // namespace ferry::python
