#include "ops/output/paths.h"

#include <algorithm>

namespace ferry {

namespace fs = std::filesystem;

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto result = fs::absolute(path, error);
  return error ? path : result.lexically_normal().string();
}

fs::path canonical(const std::string& path) {
  std::error_code error;
  const fs::path result = fs::weakly_canonical(absolute(path), error);
  if (error) return path;
  return result.has_filename() ? result : result.parent_path();
}

bool is_same_or_inside(const std::string& inner, const std::string& outer) {
  const fs::path in = canonical(inner), out = canonical(outer);
  const auto [end, unused] = std::mismatch(out.begin(), out.end(), in.begin(), in.end());
  return end == out.end();
}

}  // namespace ferry
