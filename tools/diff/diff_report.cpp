#include "tools/diff/diff_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ops/diff/compare.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kTensorsListed = 40;
constexpr size_t kObjectsListed = 8;

std::string side_line(const char* label, const DiffSide& side) {
  std::string text = fmt::format("{}  {} ({}", label, printable(side.path), side.format);
  if (side.iteration) text += fmt::format(", iteration {}", grouped(*side.iteration));
  return text + ")\n";
}

// "BF16 [4, 32]", or both where they differ.
std::string form(const TensorDiff& tensor) {
  const auto one = [](DType dtype, const Dims& shape) {
    return fmt::format("{} {}", safetensors_name(dtype), to_string(shape));
  };
  const std::string a = one(tensor.dtype_a, tensor.shape_a);
  const std::string b = one(tensor.dtype_b, tensor.shape_b);
  if (tensor.status == TensorStatus::only_in_a) return a;
  if (tensor.status == TensorStatus::only_in_b) return b;
  return a == b ? a : a + " / " + b;
}

bool is_integer(DType dtype) {
  return has_values(dtype) && !is_floating_point(dtype) && dtype != DType::boolean;
}

// Enough digits to distinguish the type's values.
std::string number_text(long double number, DType dtype) {
  if (is_integer(dtype)) return fmt::format("{:.0f}", number);
  if (dtype == DType::f64) return fmt::format("{}", static_cast<double>(number));
  return fmt::format("{:.9g}", static_cast<double>(number));
}

nlohmann::json number_json(long double number, DType dtype) {
  if (!is_integer(dtype)) return static_cast<double>(number);
  return number < 0 ? nlohmann::json(static_cast<int64_t>(number))
                    : nlohmann::json(static_cast<uint64_t>(number));
}

Dims coordinates(int64_t element, const Dims& shape) {
  Dims at(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    at[axis] = element % shape[axis];
    element /= shape[axis];
  }
  return at;
}

std::string values_text(const TensorDiff& tensor) {
  const ValueDifference& values = tensor.values;
  if (!tensor.by_value) return "";
  if (values.differing == 0) return ": equal values";
  std::string text = fmt::format(": {} of {} elements differ", grouped(values.differing),
                                 grouped(values.compared));
  const std::string first = to_string(coordinates(values.first, tensor.compared));
  if (!values.has_values) return text + ", first at " + first;
  text += fmt::format(", at most by {:.3g} (relative {:.3g})", values.max_absolute,
                      values.max_relative);
  if (values.without > 0) text += fmt::format(", {} with NaN or infinity", grouped(values.without));
  return text + fmt::format(", first at {}: {} / {}", first,
                            number_text(values.first_a, tensor.dtype_a),
                            number_text(values.first_b, tensor.dtype_b));
}

std::string tensor_line(const TensorDiff& tensor) {
  const char* label = tensor.status == TensorStatus::only_in_a   ? "only in A"
                      : tensor.status == TensorStatus::only_in_b ? "only in B"
                                                                 : "differs  ";
  return fmt::format("  {}  {}  {}{}\n", label, printable(tensor.name), form(tensor),
                     values_text(tensor));
}

std::string tensor_lines(const DiffReport& report) {
  std::string text;
  size_t listed = 0, more = 0;
  for (const TensorDiff& tensor : report.tensors) {
    if (tensor.status == TensorStatus::equal) continue;
    if (listed++ < kTensorsListed) {
      text += tensor_line(tensor);
    } else {
      ++more;
    }
  }
  if (more > 0) text += fmt::format("  and {} more; --json lists all\n", more);
  return text;
}

// The tensor whose elements are furthest apart; null where none are.
const TensorDiff* worst_of(const DiffReport& report) {
  const TensorDiff* worst = nullptr;
  for (const TensorDiff& tensor : report.tensors) {
    const ValueDifference& values = tensor.values;
    const bool has_difference = tensor.by_value && values.differing > 0 && values.has_values;
    if (!has_difference) continue;
    if (!worst || values.max_absolute > worst->values.max_absolute) worst = &tensor;
  }
  return worst;
}

std::string summary(const DiffReport& report, double seconds) {
  std::string text;
  const auto add = [&](TensorStatus status, const char* what) {
    const int64_t count = report.count(status);
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", grouped(count), what);
  };
  add(TensorStatus::equal, "equal");
  add(TensorStatus::values, "of other values");
  add(TensorStatus::dtype, "of another dtype");
  add(TensorStatus::shape, "of another shape");
  add(TensorStatus::only_in_a, "only in A");
  add(TensorStatus::only_in_b, "only in B");
  text = fmt::format("{} tensor{}: {}; {} compared in {}",
                     grouped(static_cast<int64_t>(report.tensors.size())),
                     report.tensors.size() == 1 ? "" : "s", text, human_bytes(report.bytes),
                     human_seconds(seconds));
  if (seconds >= 0.1) {
    const double rate = static_cast<double>(report.bytes) / seconds;
    text += fmt::format(" ({}/s)", human_bytes(static_cast<uint64_t>(rate)));
  }
  text += "\n";
  if (const TensorDiff* const worst = worst_of(report)) {
    text +=
        fmt::format("largest difference {:.3g} (relative {:.3g}), of {}\n",
                    worst->values.max_absolute, worst->values.max_relative, printable(worst->name));
  }
  return text;
}

// The names of objects that are on one side alone.
std::string names_on(const char* label, const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kObjectsListed; ++i) {
    text += fmt::format("  {}  {}\n", label, printable(names[i]));
  }
  if (names.size() > kObjectsListed) {
    text += fmt::format("  and {} more; --json lists all\n", names.size() - kObjectsListed);
  }
  return text;
}

std::string object_lines(const ObjectsDiff& objects) {
  std::string text;
  for (size_t i = 0; i < objects.changed.size() && i < kObjectsListed; ++i) {
    const ObjectsDiff::Changed& changed = objects.changed[i];
    text += fmt::format("  differs    {}  {}", printable(changed.name),
                        printable(fmt::format("{}", fmt::join(changed.changes, "; "))));
    text += changed.more > 0 ? fmt::format("; and {} more\n", changed.more) : "\n";
  }
  const size_t listed = std::min(objects.changed.size(), kObjectsListed);
  if (objects.changed.size() > listed) {
    text += fmt::format("  and {} more; --json lists all\n", objects.changed.size() - listed);
  }
  text += names_on("only in A", objects.only_in_a) + names_on("only in B", objects.only_in_b);
  return text + fmt::format(
                    "{} objects besides tensors are equal, {} differ, {} are only in A, {} "
                    "only in B\n",
                    objects.equal, objects.changed.size(), objects.only_in_a.size(),
                    objects.only_in_b.size());
}

bool has_any(const ObjectsDiff& objects) {
  return objects.equal > 0 || !objects.changed.empty() || !objects.problems.empty() ||
         (!objects.only_in_a.empty() && !objects.only_in_b.empty());
}

nlohmann::json json_of(const TensorDiff& tensor) {
  using nlohmann::json;
  const bool in_a = tensor.status != TensorStatus::only_in_b;
  const bool in_b = tensor.status != TensorStatus::only_in_a;
  const auto side = [](bool there, DType dtype, const Dims& shape) {
    return there ? json{{"dtype", safetensors_name(dtype)}, {"shape", shape}} : json(nullptr);
  };
  json result{{"name", tensor.name},
              {"status", name(tensor.status)},
              {"a", side(in_a, tensor.dtype_a, tensor.shape_a)},
              {"b", side(in_b, tensor.dtype_b, tensor.shape_b)},
              {"values", nullptr}};
  if (!tensor.by_value) return result;
  const ValueDifference& values = tensor.values;
  result["values"] = {{"compared", values.compared}, {"differing", values.differing}};
  if (values.differing == 0) return result;
  result["values"]["first"] = coordinates(values.first, tensor.compared);
  if (!values.has_values) return result;
  result["values"]["first_a"] = number_json(values.first_a, tensor.dtype_a);
  result["values"]["first_b"] = number_json(values.first_b, tensor.dtype_b);
  result["values"]["max_absolute"] = values.max_absolute;
  result["values"]["max_relative"] = values.max_relative;
  result["values"]["not_finite"] = values.without;
  return result;
}

nlohmann::json json_of(const ObjectsDiff& objects) {
  using nlohmann::json;
  json changed = json::array();
  for (const ObjectsDiff::Changed& object : objects.changed) {
    changed.push_back(
        {{"name", object.name}, {"changes", object.changes}, {"more_changes", object.more}});
  }
  return {{"equal", objects.equal},
          {"differing", std::move(changed)},
          {"only_in_a", objects.only_in_a},
          {"only_in_b", objects.only_in_b},
          {"problems", objects.problems}};
}

}  // namespace

std::string to_text(const DiffReport& report, double seconds) {
  std::string text = side_line("A", report.a) + side_line("B", report.b) + tensor_lines(report) +
                     summary(report, seconds);
  if (report.objects && has_any(*report.objects)) text += object_lines(*report.objects);
  std::vector<std::string> notes = report.notes;
  if (report.objects) {
    notes.insert(notes.end(), report.objects->problems.begin(), report.objects->problems.end());
  }
  return text + note_lines(notes, kNotesShown);
}

nlohmann::json to_json(const DiffReport& report, double seconds) {
  using nlohmann::json;
  const auto side = [](const DiffSide& one) {
    return json{{"path", one.path},
                {"format", one.format},
                {"iteration", one.iteration ? json(*one.iteration) : json(nullptr)}};
  };
  json counts = json::object();
  for (const TensorStatus status :
       {TensorStatus::equal, TensorStatus::values, TensorStatus::dtype, TensorStatus::shape,
        TensorStatus::only_in_a, TensorStatus::only_in_b}) {
    counts[std::string(name(status))] = report.count(status);
  }
  json differing = json::array();
  for (const TensorDiff& tensor : report.tensors) {
    if (tensor.status != TensorStatus::equal) differing.push_back(json_of(tensor));
  }
  const TensorDiff* const worst = worst_of(report);
  const json largest = worst ? json{{"name", worst->name},
                                    {"max_absolute", worst->values.max_absolute},
                                    {"max_relative", worst->values.max_relative}}
                             : json(nullptr);
  return {{"a", side(report.a)},
          {"b", side(report.b)},
          {"equal", report.equal()},
          {"largest_difference", largest},
          {"tensors", std::move(counts)},
          {"differing", std::move(differing)},
          {"objects", report.objects ? json_of(*report.objects) : json(nullptr)},
          {"notes", report.notes},
          {"bytes", report.bytes},
          {"seconds", seconds}};
}

}  // namespace ferry::tool
