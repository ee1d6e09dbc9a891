#include "ckpt/format/deepspeed/zero_files.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string_view>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr std::string_view kModelEnd = "_model_states.pt", kOptimizerEnd = "_optim_states.pt";
constexpr std::string_view kBegins[] = {"bf16_zero_pp_rank_", "fp16_zero_pp_rank_",
                                        "zero_pp_rank_"};
constexpr std::string_view kModelRank = "mp_rank_";

struct ZeroName {
  int64_t data_rank = -1;  // -1: none in the name
  int64_t model_rank = 0;
};

bool take_number(std::string_view& text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value >= 1 << 20) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// "[bf16_]zero_pp_rank_3_mp_rank_00" or "mp_rank_00", before one of the ends.
bool parse_stem(std::string_view stem, ZeroName& name) {
  for (const std::string_view begin : kBegins) {
    if (!stem.starts_with(begin)) continue;
    stem.remove_prefix(begin.size());
    if (!take_number(stem, name.data_rank) || !stem.starts_with("_")) return false;
    stem.remove_prefix(1);
    break;
  }
  if (!stem.starts_with(kModelRank)) return false;
  stem.remove_prefix(kModelRank.size());
  return take_number(stem, name.model_rank) && stem.empty();
}

bool has_end(const std::string& name, std::string_view end) { return name.ends_with(end); }

std::vector<std::string> by_rank(const std::map<int64_t, std::string>& files,
                                 const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& [rank, name] : files) {
    if (rank != static_cast<int64_t>(names.size())) {
      fail(ErrorKind::not_found, "{}: the file of rank {} is missing, that of rank {} is {}",
           folder, names.size(), rank, name);
    }
    names.push_back(name);
  }
  return names;
}

[[noreturn]] void refuse(const std::string& folder, const std::string& name) {
  fail(ErrorKind::unsupported,
       "{}: {} is of a model that tensor, pipeline or expert parallelism split, which cannot be "
       "read; DeepSpeed's ds_to_universal makes a universal checkpoint of it, which can",
       folder, name);
}

}  // namespace

bool is_zero_file(const std::string& name) {
  ZeroName ranks;
  for (const std::string_view end : {kModelEnd, kOptimizerEnd}) {
    if (!has_end(name, end)) continue;
    const std::string_view stem = std::string_view(name).substr(0, name.size() - end.size());
    return parse_stem(stem, ranks) || stem.starts_with("layer_") || stem.starts_with("expp_rank_");
  }
  return false;
}

ZeroFiles find_zero_files(const std::vector<std::string>& names, const std::string& folder) {
  std::map<int64_t, std::string> model, parts, optimizer;
  for (const std::string& name : names) {
    const bool of_model = has_end(name, kModelEnd), of_optimizer = has_end(name, kOptimizerEnd);
    if (!of_model && !of_optimizer) continue;
    const size_t end = (of_model ? kModelEnd : kOptimizerEnd).size();
    ZeroName ranks;
    if (!parse_stem(std::string_view(name).substr(0, name.size() - end), ranks) ||
        ranks.model_rank != 0) {
      refuse(folder, name);
    }
    auto& files = of_optimizer ? optimizer : ranks.data_rank < 0 ? model : parts;
    if (files.emplace(std::max<int64_t>(ranks.data_rank, 0), name).second) continue;
    fail(ErrorKind::invalid, "{}: {} and {} are of the same rank; move those of one save away",
         folder, files.at(std::max<int64_t>(ranks.data_rank, 0)), name);
  }
  ZeroFiles files;
  files.folder = folder;
  files.is_partitioned = model.empty() && !parts.empty();
  files.model = by_rank(files.is_partitioned ? parts : model, folder);
  files.optimizer = by_rank(optimizer, folder);
  if (files.model.empty()) {
    fail(ErrorKind::not_found,
         "{}: no *_model_states.pt, which says what the parameters are called; complete the copy",
         folder);
  }
  return files;
}

}  // namespace ferry
