#include "tools/diff/diff_job.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "tools/diff/value_pass.h"
#include "tools/terminal/glob.h"

namespace ferry::tool {
namespace {

DiffSide describe(const Checkpoint& checkpoint) {
  return {checkpoint.path, std::string(name(checkpoint.format)), checkpoint.iteration};
}

std::vector<TensorPair> matching_pairs(const Checkpoint& a, const Checkpoint& b,
                                       const std::string& only, std::vector<std::string>& notes) {
  std::vector<TensorPair> pairs = pair_tensors(a, b, notes);
  std::erase_if(pairs,
                [&](const TensorPair& pair) { return !glob_matches(only, pair.any().name); });
  if (pairs.empty()) {
    fail(ErrorKind::not_found, "no tensor of {} or {} matches '{}'", a.path, b.path, only);
  }
  return pairs;
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
  const Checkpoint a = open_checkpoint(posix_file_system(), options.a);
  const Checkpoint b = open_checkpoint(posix_file_system(), options.b);
  DiffReport report;
  report.a = describe(a);
  report.b = describe(b);
  std::vector<TensorPair> pairs = matching_pairs(a, b, options.only, report.notes);
  for (TensorPair& pair : pairs) report.tensors.push_back(judge(pair, report.notes));
  report.bytes = compare_values(a.catalog, b.catalog, pairs, report.tensors, options.tolerance,
                                options.engine);
  if (options.objects) report.objects = diff_objects(a.catalog, b.catalog);
  for (const Checkpoint* side : {&a, &b}) {
    if (side->mark) side->mark->check();
    if (!side->optimizer_problem.empty()) {
      report.notes.push_back(side->path + ": " + side->optimizer_problem);
    }
  }
  return report;
}

}  // namespace ferry::tool
