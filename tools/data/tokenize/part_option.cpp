#include "tools/data/tokenize/part_option.h"

#include <charconv>
#include <optional>

#include "ckpt/base/error.h"

namespace ferry::tool {
namespace {

std::optional<int64_t> whole_number_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A launcher's variables: the number of this process, and how many there are.
struct PartVariables {
  const char* number;
  const char* count;
  const char* first;  // the number of the first; null: 0
  const char* step;   // from one number to the next; null: 1
};

// The innermost first: steps run in array jobs.
constexpr PartVariables kVariables[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr, nullptr},
    {"PMI_RANK", "PMI_SIZE", nullptr, nullptr},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, nullptr},
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
     "SLURM_ARRAY_TASK_STEP"},
};

bool is_sound(const Part& part) {
  return part.count >= 1 && part.number >= 0 && part.number < part.count && part.count <= 99999;
}

std::optional<Part> part_of(const PartVariables& variables, const Environment& environment) {
  const auto value = [&](const char* name, int64_t otherwise) {
    const char* text = name ? environment(name) : nullptr;
    return text ? whole_number_of(text) : std::optional(otherwise);
  };
  const auto number = value(variables.number, -1), count = value(variables.count, 1);
  const auto first = value(variables.first, 0), step = value(variables.step, 1);
  if (!number || !count || !first || !step || *number < 0 || *step < 1) return std::nullopt;
  if (*count == 1 && variables.first == nullptr) return std::nullopt;  // one process of an array
  const Part part{(*number - *first) / *step, *count};
  return is_sound(part) ? std::optional(part) : std::nullopt;
}

}  // namespace

Part parse_part(const std::string& text, const Environment& environment) {
  if (text == "auto") {
    for (const PartVariables& variables : kVariables) {
      if (const std::optional<Part> part = part_of(variables, environment)) return *part;
    }
    fail(ErrorKind::invalid,
         "--part auto: no Slurm array, srun or mpirun says which of several processes this is; "
         "give --part K/N, K from 0");
  }
  const size_t slash = text.find('/');
  const auto number = whole_number_of(std::string_view(text).substr(0, slash));
  const auto count = slash == std::string::npos
                         ? std::nullopt
                         : whole_number_of(std::string_view(text).substr(slash + 1));
  if (!number || !count || !is_sound({*number, *count})) {
    fail(ErrorKind::invalid,
         "--part '{}' is neither auto nor K/N, part K from 0 to N - 1 of at most 99999", text);
  }
  return {*number, *count};
}

std::string prefix_of_part(const std::string& prefix, const Part& part) {
  if (part.count == 1) return prefix;
  return fmt::format("{}_{:05}-of-{:05}", prefix, part.number, part.count);
}

}  // namespace ferry::tool
