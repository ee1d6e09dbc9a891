// An estimate as text, as JSON, and as a page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "estimate/estimate.h"

namespace ferry::tool {

struct EstimateOutput {
  const Estimate* estimate = nullptr;
  EstimateOptions options;
  size_t most_layouts = 10;
};

std::string estimate_text(const EstimateOutput& output);
nlohmann::json estimate_json(const EstimateOutput& output);
std::string estimate_page(const EstimateOutput& output, const std::string& title);

/// Tables that text and pages share: a heading, rows with a first one of names, and which columns
/// are numbers.
struct EstimateTable {
  std::string id, heading, below;  // `below`: a sentence under it
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> is_number;
};
std::vector<EstimateTable> estimate_tables(const EstimateOutput& output);

/// "GPT-like, 24 layers ...": what is estimated, as pairs of name and value.
std::vector<std::pair<std::string, std::string>> estimate_facts(const EstimateOutput& output);

}  // namespace ferry::tool
