#include "ops/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "ckpt/base/error.h"
#include "ckpt/base/glob.h"
#include "ckpt/io/staging/reader_lock.h"
#include "convert/check/names.h"
#include "convert/export.h"
#include "convert/model/quantised_values.h"
#include "ops/diff/object_diff.h"
#include "ops/diff/pairing.h"
#include "ops/diff/tensor_diff.h"
#include "ops/diff/value_pass.h"

namespace ferry {
namespace {

DiffSide describe(const Checkpoint& checkpoint) {
  return {checkpoint.path, std::string(name(checkpoint.format)), checkpoint.iteration};
}

void require_match(const std::vector<TensorPair>& pairs, const std::vector<std::string>& patterns,
                   const DiffOptions& options) {
  for (const std::string& pattern : patterns) {
    const bool any = std::any_of(pairs.begin(), pairs.end(), [&](const TensorPair& pair) {
      return glob_matches(pattern, pair.any().name);
    });
    if (any) continue;
    fail(ErrorKind::not_found, "no tensor of {} or {} matches '{}'", options.a, options.b, pattern);
  }
}

bool same_tensors(const Catalog& a, const Catalog& b) {
  std::unordered_map<std::string_view, const Entry*> others;
  for (const Entry& entry : b.entries) others.emplace(entry.name, &entry);
  return a.entries.size() == b.entries.size() &&
         std::ranges::all_of(a.entries, [&](const Entry& entry) {
           const auto other = others.find(entry.name);
           return other != others.end() && other->second->dtype == entry.dtype &&
                  other->second->shape == entry.shape;
         });
}

// Weights that are quantised are compared by their values, but for those of two models that are
// quantised in the same way: their codes and scales show every difference.
void take_values(Checkpoint& a, Checkpoint& b, std::vector<std::string>& notes) {
  if (same_tensors(*a.catalog, *b.catalog)) return;
  for (Checkpoint* side : {&a, &b}) {
    if (!has_quantised_weights(*side->catalog)) continue;
    try {
      QuantisedValues values = values_of(*side);
      side->catalog = std::move(values.catalog);
      notes.push_back(fmt::format("{}: quantised weights are compared by their values, as {}: {}",
                                  side->path, torch_name(DType::bf16), values.forms));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported) throw;
      notes.push_back(error.what());
    }
  }
}

std::vector<TensorPair> matching_pairs(const Checkpoint& a, const Checkpoint& b,
                                       const DiffOptions& options,
                                       std::vector<std::string>& notes) {
  std::vector<TensorPair> pairs = pair_tensors(a, b, notes);
  require_match(pairs, options.only, options);
  require_match(pairs, options.drop, options);
  std::erase_if(pairs, [&](const TensorPair& pair) {
    const std::string& name = pair.any().name;
    return (!options.only.empty() && !matches_any(options.only, name)) ||
           matches_any(options.drop, name);
  });
  if (pairs.empty()) {
    fail(ErrorKind::not_found, "{} and {} leave no tensor to compare", option("only"),
         option("drop"));
  };
  return pairs;
}

// True size of the vocabulary: of two that differ the larger, so that nothing of it is overlooked.
std::optional<int64_t> vocabulary_of(const Checkpoint& a, const Checkpoint& b) {
  const int64_t size = std::max(recognise(a).vocab, recognise(b).vocab);
  return size > 0 ? std::optional(size) : std::nullopt;
}

// How much a tensor's difference weighs: those that cannot be compared before all others.
double weight(const TensorDiff& tensor) {
  if (tensor.status == TensorStatus::equal) return -1;
  const bool has_difference = tensor.by_value && tensor.values.has_values;
  return has_difference ? tensor.values.max_absolute : std::numeric_limits<double>::infinity();
}

double elements(const TensorDiff& tensor) {
  const auto count = [](const Dims& shape) {
    return std::accumulate(shape.begin(), shape.end(), 1.0, std::multiplies<>());
  };
  return tensor.status == TensorStatus::only_in_b ? count(tensor.shape_b) : count(tensor.shape_a);
}

void sort(std::vector<TensorDiff>& tensors, DiffOrder order) {
  if (order == DiffOrder::catalog) return;
  const auto key = order == DiffOrder::difference ? weight : elements;
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const TensorDiff& a, const TensorDiff& b) { return key(a) > key(b); });
}

}  // namespace

int64_t DiffReport::count(TensorStatus status) const {
  return std::count_if(tensors.begin(), tensors.end(),
                       [&](const TensorDiff& tensor) { return tensor.status == status; });
}

bool DiffReport::equal() const {
  return count(TensorStatus::equal) == static_cast<int64_t>(tensors.size());
}

DiffReport diff(const DiffOptions& options) {
  Checkpoint a = open_model(posix_file_system(), options.a, options.open_a);
  Checkpoint b = open_model(posix_file_system(), options.b, options.open_b);
  DiffReport report;
  report.a = describe(a);
  report.b = describe(b);
  take_values(a, b, report.notes);
  std::vector<TensorPair> pairs = matching_pairs(a, b, options, report.notes);
  const JudgeOptions judging{options.ignore_dtype, vocabulary_of(a, b)};
  for (TensorPair& pair : pairs) report.tensors.push_back(judge(pair, judging, report.notes));
  report.bytes = with_paths({a.path, b.path}, [&] {
    return compare_values(a.catalog, b.catalog, pairs, report.tensors, options.tolerance,
                          options.engine);
  });
  sort(report.tensors, options.order);
  if (options.objects) report.objects = diff_objects(a.catalog, b.catalog);
  for (const Checkpoint* side : {&a, &b}) {
    check_reader_locks(side->catalog->reader_locks);
    if (!side->optimizer_problem.empty()) {
      report.notes.push_back(side->path + ": " + side->optimizer_problem);
    }
  }
  return report;
}

}  // namespace ferry
