#include "trainer/arguments/namespace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "trainer/arguments/argument_row.h"

namespace ferry {
namespace {

// Rows that are attributes of the namespace; two rows may set one attribute.
bool is_attribute(const TrainArguments& arguments, const ArgumentRow& row) {
  if (row.status == ArgumentStatus::removed) return false;
  if (row.status == ArgumentStatus::fork && is_default(arguments, row)) return false;
  return find_argument(row.name()) == &row;
}

ArgumentValue saved_value(const SavedProgress& progress, const std::string& name) {
  if (name == "iteration") return progress.start_iteration;
  if (name == "curr_iteration") return std::max<int64_t>(progress.iteration - 1, 0);
  if (name == "do_train") return int64_t{progress.do_train};
  if (name == "do_valid") return int64_t{progress.do_valid};
  if (name == "do_test") return int64_t{progress.do_test};
  return progress.start_operations;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

Value write_namespace(const TrainArguments& arguments, const SavedProgress& progress,
                      Draft& draft) {
  Value result = draft.instance("argparse.Namespace");
  for (const ArgumentRow& row : argument_rows()) {
    if (!is_attribute(arguments, row)) continue;
    const std::string name = row.name();
    const ArgumentValue value = row.status == ArgumentStatus::saved ? saved_value(progress, name)
                                                                    : value_of(arguments, row);
    draft.add(result, name, python_value(row.kind, value, draft));
  }
  return result;
}

std::string arguments_banner(const TrainArguments& arguments) {
  std::vector<std::pair<std::string, std::string>> lines;  // in lower case, to sort by
  for (const ArgumentRow& row : argument_rows()) {
    if (row.status == ArgumentStatus::saved || !is_attribute(arguments, row)) continue;
    const std::string name = row.name();
    const std::string dots(name.size() < 48 ? 48 - name.size() : 0, '.');
    std::string line =
        fmt::format("  {} {} {}\n", name, dots, python_text(row.kind, value_of(arguments, row)));
    lines.emplace_back(lower(line), std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  std::string text = "------------------------ arguments ------------------------\n";
  for (const auto& line : lines) text += line.second;
  return text += "-------------------- end of arguments ---------------------\n";
}

}  // namespace ferry
