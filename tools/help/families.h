// `ferry help families`: what convert knows, as a table.
#pragma once

#include <string>

namespace ferry::tool {

/// A line a family, in columns, or as rows of a Markdown table: name, class, by which programs its
/// conversions were judged.
std::string families_table(bool markdown);

/// The same as a JSON array.
std::string families_json();

}  // namespace ferry::tool
