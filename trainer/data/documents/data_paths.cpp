#include "trainer/data/documents/data_paths.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "trainer/data/samples/index_cache.h"

namespace ferry {
namespace {

constexpr const char* kDefaultSplit = "969, 30, 1";  // its spaces are part of descriptions
constexpr const char* kBlanks = " \t\n\v\f\r";
constexpr uint64_t kMostBytes = 64 << 20;  // of an argument file
constexpr size_t kPairwiseBlock = 128;

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = text.find_first_not_of(kBlanks); begin != std::string::npos;) {
    const size_t end = text.find_first_of(kBlanks, begin);
    words.push_back(text.substr(begin, end - begin));
    begin = end == std::string::npos ? end : text.find_first_not_of(kBlanks, end);
  }
  return words;
}

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

double pairwise_sum(std::span<const double> values) {
  if (values.size() < 8) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum;
  }
  if (values.size() > kPairwiseBlock) {
    const size_t half = values.size() / 2 / 8 * 8;
    return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
  }
  double lanes[8];
  std::copy_n(values.begin(), 8, lanes);
  size_t i = 8;
  for (; i + 8 <= values.size(); i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) lanes[lane] += values[i + lane];
  }
  double sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
               ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

// A list of words, or one string of them; empty for null.
std::optional<Blend> blend_of(const nlohmann::json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return parse_blend(words_of(value.get<std::string>()), where);
  std::vector<std::string> words;
  for (const nlohmann::json& word : value.is_array() ? value : nlohmann::json::array({false})) {
    if (!word.is_string() && !word.is_number()) {
      fail(ErrorKind::invalid, "{} is neither a string nor a list of prefixes and weights", where);
    }
    words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
  }
  return parse_blend(words, where);
}

PerSplit<std::optional<Blend>> read_per_split(const FileSystem& file_system,
                                              const std::string& path) {
  const nlohmann::json tree = parse_json(read_file(file_system, path, kMostBytes), path);
  PerSplit<std::optional<Blend>> blends;
  if (!tree.is_object()) fail(ErrorKind::invalid, "{} is not a JSON object", path);
  for (const auto& [key, value] : tree.items()) {
    const auto split = std::find_if(kSplits.begin(), kSplits.end(),
                                    [&key = key](DataSplit s) { return name(s) == key; });
    if (split == kSplits.end()) {
      fail(ErrorKind::invalid, "{} names a split '{}'; valid are train, valid and test", path, key);
    }
    blends[*split] = blend_of(value, fmt::format("'{}' of {}", key, path));
  }
  return blends;
}

}  // namespace

std::string_view name(DataSplit split) noexcept {
  return split == DataSplit::train ? "train" : split == DataSplit::valid ? "valid" : "test";
}

Blend parse_blend(std::span<const std::string> words, const std::string& where) {
  if (words.empty()) fail(ErrorKind::invalid, "{} does not name a dataset", where);
  size_t numbers = 0;
  if (words.size() % 2 == 0) {
    for (size_t i = 0; i < words.size(); i += 2) numbers += number_of(trimmed(words[i])) ? 1 : 0;
  }
  if (numbers != 0 && numbers != words.size() / 2) {
    fail(ErrorKind::invalid,
         "{}: {} of {} pairs begin with a weight; give each dataset a weight, or none", where,
         numbers, words.size() / 2);
  }
  Blend blend;
  for (size_t i = 0; i < words.size(); ++i) {
    if (numbers == 0 || i % 2 == 1) {
      blend.prefixes.push_back(trimmed(words[i]));
      continue;
    }
    const double weight = *number_of(trimmed(words[i]));
    if (!(weight > 0) || !std::isfinite(weight)) {
      fail(ErrorKind::invalid, "{}: the weight {} of {} is not positive", where, words[i],
           words[i + 1]);
    }
    blend.weights.push_back(weight);
  }
  return blend;
}

std::vector<double> normalized(std::span<const double> weights) {
  const double sum = pairwise_sum(weights);
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / sum);
  return shares;
}

SplitShares parse_split(const std::string& given) {
  SplitShares shares;
  shares.text = given.empty() ? kDefaultSplit : given;
  // Megatron-LM extracts any digits: it reads nan,1 as the share 1, and 1e2 as two shares. Only
  // what both read alike is accepted.
  std::vector<double> numbers;
  for (size_t begin = 0; begin <= shares.text.size();) {
    const size_t end = std::min(shares.text.find(',', begin), shares.text.size());
    const std::string part = trimmed(shares.text.substr(begin, end - begin));
    const bool is_plain = part.find_first_not_of(".0123456789") == std::string::npos;
    const auto value = is_plain ? number_of(part) : std::nullopt;
    if (!value || numbers.size() == kSplits.size()) {
      fail(ErrorKind::invalid,
           "--split '{}': expected up to three numbers separated by commas, such as 969,30,1",
           shares.text);
    }
    numbers.push_back(*value);
    begin = end + 1;
  }
  numbers.resize(kSplits.size());
  const double sum = pairwise_sum(numbers);
  if (sum <= 0 || !std::isfinite(sum)) {
    fail(ErrorKind::invalid,
         "--split '{}': at least one share must be positive, and the sum finite", shares.text);
  }
  numbers = normalized(numbers);
  double begin = 0;
  for (size_t i = 0; i < kSplits.size(); ++i) {
    const double end = begin + numbers[i];
    if (end > begin) shares.bounds[kSplits[i]] = {begin, end};
    begin = end;
  }
  return shares;
}

std::string split_matrix(const SplitShares& shares) {
  DescriptionList matrix;
  for (const DataSplit split : kSplits) {
    const auto& bounds = shares.bounds[split];
    if (!bounds) {
      matrix.add("null");
      continue;
    }
    DescriptionList pair;
    pair.add(split == DataSplit::train ? "0" : number(bounds->first));  // an integer in Python
    pair.add(number(bounds->second));
    matrix.add(pair.text());
  }
  return matrix.text();
}

SequenceRange range_of(const std::pair<double, double>& bounds, int64_t sequences) {
  const auto place = [sequences](double share) {  // round half to even, as Python does
    return static_cast<int64_t>(std::nearbyint(share * static_cast<double>(sequences)));
  };
  return {std::min(place(bounds.first), sequences), std::min(place(bounds.second), sequences)};
}

DataPaths parse_data_paths(const FileSystem& file_system, const DataOptions& options) {
  const PerSplit<std::vector<std::string>>& each = options.split_data_path;
  const bool any_split = !each.train.empty() || !each.valid.empty() || !each.test.empty();
  const int ways = (options.data_path.empty() ? 0 : 1) + (options.data_args_path.empty() ? 0 : 1) +
                   (any_split ? 1 : 0) + (options.per_split_data_args_path.empty() ? 0 : 1) +
                   (options.mock_data ? 1 : 0);
  if (ways != 1) {
    fail(ErrorKind::invalid,
         "{} of --data-path, --data-args-path, --train-data-path (and --valid-data-path, "
         "--test-data-path), --per-split-data-args-path and --mock-data are given; give one",
         ways);
  }
  const bool per_split = any_split || !options.per_split_data_args_path.empty();
  if (per_split && !options.split.empty()) {
    fail(ErrorKind::invalid, "--split {} has no effect: each split has its own data. Leave it out",
         options.split);
  }
  DataPaths paths;
  if (!options.data_path.empty()) paths.all = parse_blend(options.data_path, "--data-path");
  if (!options.data_args_path.empty()) {
    const std::string& path = options.data_args_path;
    paths.all = parse_blend(words_of(read_file(file_system, path, kMostBytes)), path);
  }
  if (!options.per_split_data_args_path.empty()) {
    paths.each = read_per_split(file_system, options.per_split_data_args_path);
  }
  for (const DataSplit split : kSplits) {
    if (each[split].empty()) continue;
    paths.each[split] = parse_blend(each[split], fmt::format("--{}-data-path", name(split)));
  }
  return paths;
}

}  // namespace ferry
