#include "ckpt/format/torch/optimizer_facts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr int kMostFactDepth = 4;
constexpr size_t kStatesAsked = 16;
constexpr double kMostSteps = 9007199254740992;  // what a double counts to

std::optional<int64_t> count_of(double number) {
  const bool whole = number >= 0 && number <= kMostSteps && number == std::floor(number);
  return whole ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
}

template <typename Number>
std::optional<int64_t> count_at(const ReadableFile& file, uint64_t offset) {
  std::array<std::byte, sizeof(Number)> bytes;
  file.read(offset, bytes);
  Number number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return count_of(static_cast<double>(number));
}

std::optional<int64_t> count_in(const TorchArchive& archive, const ReadableFile& file,
                                const StoredTensor& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements = size == 1 ? elements : 0;
  if (elements != 1 || tensor.storage_offset < 0) return std::nullopt;
  const std::string what = file.path() + ": a number of steps";
  check_view(tensor, what);
  const auto bytes = static_cast<uint64_t>(size_bytes(tensor.dtype));
  const uint64_t offset =
      archive.storage(tensor, what).offset + static_cast<uint64_t>(tensor.storage_offset) * bytes;
  switch (tensor.dtype) {
    case DType::f32:
      return count_at<float>(file, offset);
    case DType::f64:
      return count_at<double>(file, offset);
    case DType::i32:
      return count_at<int32_t>(file, offset);
    case DType::i64:
      return count_at<int64_t>(file, offset);
    default:
      return std::nullopt;
  }
}

// The dict that has param_groups, not far inside `root`; none when there is none. Dicts may be
// shared: each is visited once.
Value optimizer_in(const Value& root) {
  std::unordered_set<uint32_t> seen;
  std::vector<Value> level{root};
  for (int depth = 0; depth <= kMostFactDepth; ++depth) {
    std::vector<Value> inside;
    for (const Value& value : level) {
      if (value.kind() != ValueKind::dict || !seen.insert(value.node()).second) continue;
      const Value groups = value.get("param_groups");
      if (groups.kind() == ValueKind::list && groups.size() > 0) return value;
      const size_t count = std::min<size_t>(value.pair_count(), 64);
      for (size_t i = 0; i < count; ++i) inside.push_back(value.pair_value(i));
    }
    level = std::move(inside);
  }
  return {};
}

// Nothing where its record is damaged.
std::optional<int64_t> read_steps(const TorchArchive& archive, const ReadableFile& file,
                                  const Value& step) {
  try {
    return read_count(archive, file, step);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void StepsOfRanks::add(const std::string& file, std::optional<int64_t> steps) {
  if (!steps) return;
  if (first_.empty()) {
    first_ = file;
    steps_ = *steps;
  } else if (*steps != steps_ && other_.empty()) {
    other_ = file;
    other_steps_ = *steps;
  }
}

void StepsOfRanks::check(const std::string& folder) const {
  if (other_.empty()) return;
  fail(ErrorKind::corrupt,
       "{}: {} was saved after {} steps, {} after {}: they are of different saves, and the model "
       "would be a mixture; copy the files of one save",
       folder, first_, steps_, other_, other_steps_);
}

std::optional<int64_t> read_count(const TorchArchive& archive, const ReadableFile& file,
                                  const Value& value) {
  if (const StoredTensor* tensor = value.tensor()) return count_in(archive, file, *tensor);
  const auto number = value.real();
  return number ? count_of(*number) : std::nullopt;
}

OptimizerFacts read_optimizer_facts(const TorchArchive& archive, const ReadableFile& file) {
  OptimizerFacts facts;
  const Value optimizer = optimizer_in(archive.pickle->root());
  if (!optimizer) return facts;
  const Value groups = optimizer.get("param_groups");
  facts.param_groups = {archive.pickle, groups};
  facts.steps = read_steps(archive, file, groups[0].get("step"));
  const Value state = optimizer.get("state");
  // The most of several: an expert that got no token for a while has fewer.
  const bool is_own = !facts.steps;
  for (size_t i = 0, asked = 0; is_own && i < state.pair_count() && asked < kStatesAsked; ++i) {
    const auto steps = read_steps(archive, file, state.pair_value(i).get("step"));
    asked += steps.has_value();
    facts.steps = std::max(facts.steps, steps);
  }
  return facts;
}

namespace {

constexpr std::string_view kState = "state.", kGroups = "param_groups.";
constexpr std::string_view kMembers[] = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
                                         "momentum_buffer"};

// "optim", "optimizer", "optimizers", "optimizer_0", "optim_state_dict".
bool names_optimizer(std::string_view part) { return part.starts_with("optim"); }

}  // namespace

std::optional<OptimizerKey> parse_optimizer_key(std::string_view name) {
  for (size_t begin = 0;;) {
    const size_t dot = name.find('.', begin);
    if (dot == std::string_view::npos) return std::nullopt;
    std::string_view rest = name.substr(dot + 1);
    const bool in_groups = rest.starts_with(kGroups);
    if (names_optimizer(name.substr(begin, dot - begin)) &&
        (in_groups || rest.starts_with(kState))) {
      rest.remove_prefix(in_groups ? kGroups.size() : kState.size());
      const size_t last = rest.rfind('.');
      if (last == std::string_view::npos || last == 0 || last + 1 == rest.size()) {
        return std::nullopt;
      }
      return OptimizerKey{name.substr(0, dot), in_groups, rest.substr(0, last),
                          rest.substr(last + 1)};
    }
    begin = dot + 1;
  }
}

bool is_state_of_parameter(const OptimizerKey& key) {
  return !key.in_groups && std::ranges::find(kMembers, key.member) != std::end(kMembers);
}

}  // namespace ferry
