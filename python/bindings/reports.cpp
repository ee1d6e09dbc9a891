// What convert(), reshard(), verify(), seal(), diff() and prune() return.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cmath>

#include "ops/check.h"
#include "ops/convert.h"
#include "ops/diff.h"
#include "ops/prune.h"
#include "ops/reshard.h"
#include "ops/verify.h"
#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/record.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

void bind_written(nb::module_& module) {
  Record<ParallelLayout>(module, "ParallelLayout",
                         "Numbers of ranks, each None where it is not known.")
      .field("tensor", known<&ParallelLayout::tensor>)
      .field("pipeline", known<&ParallelLayout::pipeline>)
      .field("virtual_pipeline", known<&ParallelLayout::virtual_pipeline>)
      .field("expert", known<&ParallelLayout::expert>)
      .field("expert_tensor", known<&ParallelLayout::expert_tensor>)
      .field("data", known<&ParallelLayout::data>)
      .field("context", known<&ParallelLayout::context>)
      .field("world_size", known<&ParallelLayout::world_size>);
  Record<WrittenFiles>(module, "WrittenFiles", "Files that an operation wrote, or would write.")
      .field("files", &WrittenFiles::files, "Name and bytes of each.")
      .field("bytes", &WrittenFiles::bytes, "Of all files.")
      .field("dry_run", &WrittenFiles::dry_run, "Nothing was written.")
      .field("seconds", &WrittenFiles::seconds, "Of reading and writing.")
      .field("free_bytes", &WrittenFiles::free_bytes,
             "After a dry run: free at the target's place; None where that is not known.");
}

void bind_convert(nb::module_& module) {
  using Other = ConvertReport::OtherIteration;
  Record<Other>(module, "OtherIteration", "An iteration that Megatron-LM would load instead.")
      .field("iteration", &Other::iteration)
      .field("tracker", &Other::tracker, "The file that names it.");
  Record<ConvertReport>(module, "ConvertReport", "What convert() did.")
      .field("source", &ConvertReport::source, "The folder or file that was read.")
      .field("target", &ConvertReport::target)
      .field("source_format", &ConvertReport::source_format)
      .field("iteration", &ConvertReport::iteration, "Of the source; None: it has none.")
      .field("family", text_or_none<&ConvertReport::family>, "None: not converted, only copied.")
      .field("layout", &ConvertReport::layout, "Of a Megatron-LM run that was made.")
      .field("load_with", &ConvertReport::load_with,
             "Arguments of Megatron-LM's that load the run: '--load DIR', ...")
      .field("loaded_instead", &ConvertReport::loaded_instead,
             "The iteration that Megatron-LM loads until the tracker names the new one.")
      .field("tensors", &ConvertReport::tensors, "Number of tensors written.")
      .field("parameters", &ConvertReport::parameters, "Their elements.")
      .field("integers", &ConvertReport::integers,
             "Elements of quantized weights, whose parameters cannot be counted.")
      .field("written", &ConvertReport::written)
      .field("warnings", messages<&ConvertReport::warnings>);
}

void bind_reshard(nb::module_& module) {
  using Side = ReshardReport::Side;
  Record<Side>(module, "ReshardSide", "The source or the target of reshard().")
      .field("path", &Side::path)
      .field("format", &Side::format)
      .field("optimizer", text_or_none<&Side::optimizer>, "Form of its state; None: there is none.")
      .field("remainders", &Side::remainders,
             "fp32 master weights are stored as 16-bit remainders.")
      .field("layout", &Side::layout);
  Record<ReshardReport>(module, "ReshardReport", "What reshard() did.")
      .field("source", &ReshardReport::source)
      .field("target", &ReshardReport::target)
      .field("iteration", &ReshardReport::iteration)
      .field("tensors", &ReshardReport::tensors, "Number of tensors written.")
      .field("parameters", &ReshardReport::parameters, "Elements of the model's tensors.")
      .field("written", &ReshardReport::written)
      .field("warnings", messages<&ReshardReport::warnings>);
}

void bind_verify(nb::module_& module) {
  Record<Problem>(module, "Problem", "Something that is wrong with a checkpoint.")
      .field("file", text_or_none<&Problem::file>,
             "Inside the checkpoint's folder; None: the checkpoint as a whole.")
      .field("offset", &Problem::offset, "Of the bytes in question, in the file.")
      .field("bytes", &Problem::bytes, "How many they are; 0: the file as a whole.")
      .field("holds", text_or_none<&Problem::holds>, "What they are: 'tensor a.b [0:2, 0:32]'.")
      .field("what", message<&Problem::what>, "A sentence that says all.");
  Record<NonFiniteTensor>(module, "NonFiniteTensor", "Values of a tensor that are not finite.")
      .field("name", &NonFiniteTensor::name)
      .field("nan", [](const NonFiniteTensor& tensor) { return tensor.values.nan; })
      .field("infinite", [](const NonFiniteTensor& tensor) { return tensor.values.infinite; })
      .field("elements", &NonFiniteTensor::elements, "Of the whole tensor.");
  Record<VerifyReport>(module, "VerifyReport", "What verify() found. True where nothing is wrong.")
      .field("path", &VerifyReport::path, "The folder or file that was checked.")
      .field("format", text_or_none<&VerifyReport::format>, "None: it could not be opened.")
      .field("iteration", &VerifyReport::iteration)
      .field("has_manifest", &VerifyReport::has_manifest, "ferry's own checksums are there.")
      .field("problems", &VerifyReport::problems)
      .field("notes", messages<&VerifyReport::notes>,
             "What could not be checked, and other warnings.")
      .field("non_finite", &VerifyReport::non_finite, "Tensors with NaN or infinite values.")
      .field("files", &VerifyReport::files, "Number of files.")
      .field("bytes", &VerifyReport::bytes, "Of the files.")
      .field("covered_bytes", &VerifyReport::covered_bytes, "Of these, under a checksum.")
      .field("masters", &VerifyReport::masters, "fp32 master weights compared with the weights.")
      .field("tensors", &VerifyReport::tensors, "Whose chunks cover them exactly once.")
      .field("items", &VerifyReport::items, "Archives whose structure is right.")
      .field("digests", &VerifyReport::digests)
      .field("crc32s", &VerifyReport::crc32s)
      .field("sha256s", &VerifyReport::sha256s)
      .field("seconds", &VerifyReport::seconds)
      .python_class()
      .def("__bool__", [](const VerifyReport& report) { return report.problems.empty(); });
  Record<RunVerification>(module, "RunVerification",
                          "What verify(run=True) found. True where nothing is wrong.")
      .field("path", &RunVerification::path)
      .field("tracker_problem", message_or_none<&RunVerification::tracker_problem>)
      .field("iterations", &RunVerification::iterations, "A report for each complete one.")
      .field("notes", messages<&RunVerification::notes>, "Iterations not checked, and why.")
      .field("problem_count", &RunVerification::problem_count)
      .python_class()
      .def("__bool__", [](const RunVerification& run) { return run.problem_count() == 0; });
  Record<Finding>(module, "Finding", "Something that a program which loads a model trips over.")
      .field("is_problem", &Finding::is_problem, "False: a warning.")
      .field("kind", &Finding::kind, "'missing', 'shape', 'index', 'tokenizer', ...")
      .field("subject", &Finding::subject, "The file, tensor or member.")
      .field("what", message<&Finding::what>, "A sentence.")
      .field("advice", message<&Finding::advice>, "What to do.");
  Record<CheckReport>(module, "CheckReport", "What check() found. True where nothing is a problem.")
      .field("path", &CheckReport::path, "The folder that was checked.")
      .field("family", text_or_none<&CheckReport::family>, "None: no known one.")
      .field("like", text_or_none<&CheckReport::like>, "The folder that it was compared with.")
      .field(
          "loader", [](const CheckReport& report) { return std::string(name(report.loader)); },
          "'any', 'transformers', 'vllm' or 'sglang'.")
      .field("findings", &CheckReport::findings, "Problems first.")
      .field("problems", &CheckReport::problems, "How many of the findings are problems.")
      .field("tensors", &CheckReport::tensors)
      .field("files", &CheckReport::files)
      .field("seconds", &CheckReport::seconds)
      .python_class()
      .def("__bool__", [](const CheckReport& report) { return report.problems == 0; });
  Record<SealReport>(module, "SealReport", "What seal() did.")
      .field("path", &SealReport::path)
      .field("format", &SealReport::format)
      .field("renewed", &SealReport::renewed, "There was a manifest.")
      .field("added", &SealReport::added, "Files that the old manifest does not name.")
      .field("removed", &SealReport::removed, "Files that it names and that are gone.")
      .field("changed", &SealReport::changed, "Files of other bytes.")
      .field("files", &SealReport::files, "Number of files.")
      .field("tensors", &SealReport::tensors)
      .field("items", &SealReport::items, "Digests.")
      .field("bytes", &SealReport::bytes)
      .field("sha256", &SealReport::sha256, "integrity.json was written, too.")
      .field("notes", messages<&SealReport::notes>);
}

// A value of any dtype: a float, or an int where that alone holds it.
nb::object exact(long double value) {
  if (std::isfinite(value) && static_cast<long double>(static_cast<double>(value)) != value) {
    return nb::steal(PyLong_FromString(std::to_string(value).c_str(), nullptr, 10));
  }
  return nb::float_(static_cast<double>(value));
}

void bind_diff(nb::module_& module) {
  Record<ValueDifference>(module, "ValueDifference", "How the values of two tensors differ.")
      .field("compared", &ValueDifference::compared, "Elements.")
      .field("differing", &ValueDifference::differing, "Of these.")
      .field("without", &ValueDifference::without,
             "Differing ones with NaN or infinity on one side.")
      .field("max_absolute", &ValueDifference::max_absolute)
      .field("max_relative", &ValueDifference::max_relative, "|a - b| / max(|a|, |b|).")
      .field(
          "first",
          [](const ValueDifference& values) {
            return values.first < 0 ? std::nullopt : std::optional(values.first);
          },
          "Position of the first that differs, in row-major order; None: none does.")
      .field("first_a", [](const ValueDifference& values) { return exact(values.first_a); })
      .field("first_b", [](const ValueDifference& values) { return exact(values.first_b); })
      .field("has_values", &ValueDifference::has_values,
             "False: of a type that is compared by its bytes alone.");
  Record<TensorDiff>(module, "TensorDiff", "One tensor of two checkpoints.")
      .field("name", &TensorDiff::name)
      .field(
          "status", [](const TensorDiff& tensor) { return name(tensor.status); },
          "'equal', 'values', 'dtype', 'shape', 'only in A' or 'only in B'.")
      .field("dtype_a", &TensorDiff::dtype_a)
      .field("dtype_b", &TensorDiff::dtype_b)
      .field("shape_a", &TensorDiff::shape_a)
      .field("shape_b", &TensorDiff::shape_b)
      .field("compared", &TensorDiff::compared,
             "The shape that both have, without padding rows of the vocabulary.")
      .field("by_value", &TensorDiff::by_value, "Its values were compared.")
      .field("values", &TensorDiff::values);
  using Changed = ObjectsDiff::Changed;
  Record<Changed>(module, "ObjectChange", "A stored object that differs.")
      .field("name", &Changed::name)
      .field("changes", &Changed::changes, "'args.lr: 0.1 / 0.2'; the first few.")
      .field("more", &Changed::more, "Changes that are not listed.");
  Record<ObjectsDiff>(module, "ObjectsDiff", "How stored objects other than tensors differ.")
      .field("equal", &ObjectsDiff::equal, "Number of those that do not.")
      .field("changed", &ObjectsDiff::changed)
      .field("only_in_a", &ObjectsDiff::only_in_a)
      .field("only_in_b", &ObjectsDiff::only_in_b)
      .field("problems", messages<&ObjectsDiff::problems>, "What could not be read, and why.");
  Record<DiffSide>(module, "DiffSide", "One of the two checkpoints of diff().")
      .field("path", &DiffSide::path)
      .field("format", &DiffSide::format)
      .field("iteration", &DiffSide::iteration);
  Record<DiffReport>(module, "DiffReport", "What diff() found.")
      .field("a", &DiffReport::a)
      .field("b", &DiffReport::b)
      .field("equal", &DiffReport::equal, "All tensors are; objects do not matter.")
      .field("tensors", &DiffReport::tensors, "All that were compared, equal ones included.")
      .field("objects", &DiffReport::objects, "None: not compared.")
      .field("notes", messages<&DiffReport::notes>)
      .field("bytes", &DiffReport::bytes, "Of A that were compared.");
}

void bind_prune(nb::module_& module) {
  Record<PrunedItem>(module, "PrunedItem", "A folder of a run.")
      .field("name", &PrunedItem::name, "Inside the run folder.")
      .field("iteration", &PrunedItem::iteration)
      .field("goes", &PrunedItem::goes, "It was removed, or would be.")
      .field("reason", message<&PrunedItem::reason>)
      .field("bytes", &PrunedItem::bytes);
  Record<PruneReport>(module, "PruneReport", "What prune() did.")
      .field("iterations", &PruneReport::iterations, "Rising; release last.")
      .field("leftovers", &PruneReport::leftovers, "Of interrupted saves.")
      .field("bytes", &PruneReport::bytes, "Of what goes.")
      .field("notes", messages<&PruneReport::notes>)
      .field("dry_run", &PruneReport::dry_run);
}

}  // namespace

void bind_reports(nb::module_& module) {
  bind_written(module);
  bind_convert(module);
  bind_reshard(module);
  bind_verify(module);
  bind_diff(module);
  bind_prune(module);
}

}  // namespace ferry::python
