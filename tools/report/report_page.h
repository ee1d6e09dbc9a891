// The page that `ferry report` writes: HTML without scripts and without anything from elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/inspect/inspect_report.h"
#include "tools/report/histogram.h"
#include "tools/report/html.h"

namespace ferry::tool {

struct ReportContent {
  const InspectReport* inspect = nullptr;
  std::vector<std::pair<const Entry*, Histogram>> histograms;
};

/// The whole page. What names and values hold is text in it, never markup. Long lists are cut, and
/// say so: some hundred kilobytes for a checkpoint of 14,000 chunks.
std::string report_page(const ReportContent& content);

/// Its sections. `labels` are those of the catalog's files.
std::string modules_section(const Catalog& catalog);
std::string map_section(const Catalog& catalog, const std::vector<std::string>& labels);
std::string files_section(const Catalog& catalog, const std::vector<std::string>& labels,
                          const std::string& folder);
std::string histograms_section(const ReportContent& content);

/// The hue, in degrees, that stands for a file.
int hue_of(size_t file, size_t files);

}  // namespace ferry::tool
