#include "convert/rewrite/stored_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"

namespace ferry {
namespace {

constexpr size_t kKeptShown = 3;  // names in a warning

class Rewriter {
 public:
  Rewriter(const Catalog& catalog, std::optional<DType> dtype)
      : catalog_(catalog), dtype_(dtype), common_(common_dtype()) {}

  ExportedTensors run(std::vector<std::string>& warnings) {
    ExportedTensors result;
    result.dtype = dtype_.value_or(common_);
    for (uint32_t i = 0; i < catalog_.entries.size(); ++i) result.tensors.push_back(tensor(i));
    if (!kept_.empty()) warnings.push_back(kept_warning());
    return result;
  }

 private:
  // The dtype of most elements; codes of quantised weights stand for bf16.
  DType common_dtype() const {
    std::map<DType, double> elements;
    const std::vector<QuantisedPart> parts = quantised_parts(catalog_);
    for (uint32_t i = 0; i < catalog_.entries.size(); ++i) {
      const Entry& entry = catalog_.entries[i];
      const bool is_code = parts[i].role == QuantisedRole::codes;
      if (!is_floating_point(entry.dtype)) continue;
      if (!is_code && parts[i].role != QuantisedRole::none) continue;
      elements[is_code ? DType::bf16 : entry.dtype] += static_cast<double>(entry.elements());
    }
    const auto most =
        std::max_element(elements.begin(), elements.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == elements.end() ? DType::f32 : most->first;
  }

  ExportedTensor tensor(uint32_t position) {
    const Entry& stored = catalog_.entries[position];
    ExportedTensor tensor;
    tensor.entry.name = stored.name;
    tensor.entry.shape = stored.shape;
    tensor.entry.dtype = dtype_of(stored);
    tensor.recipe.inputs = {position};
    tensor.recipe.moves = {copy_all(stored.shape)};
    return tensor;
  }

  DType dtype_of(const Entry& stored) {
    if (!dtype_ || !is_floating_point(stored.dtype)) return stored.dtype;
    const DType requested = *dtype_;
    const bool is_kept = size_bytes(stored.dtype) > size_bytes(common_) &&
                         size_bytes(stored.dtype) > size_bytes(requested);
    if (is_kept) {
      kept_.push_back(&stored);
      return stored.dtype;
    }
    if (!can_convert(stored.dtype, requested)) {
      fail(ErrorKind::unsupported, "tensor {}: {} cannot be written as {}", stored.name,
           torch_name(stored.dtype), torch_name(requested));
    }
    return requested;
  }

  std::string kept_warning() const {
    std::string names;
    for (size_t i = 0; i < kept_.size() && i < kKeptShown; ++i) {
      names += (i > 0 ? ", " : "") + kept_[i]->name;
    }
    if (kept_.size() > kKeptShown) names += fmt::format(" and {} more", kept_.size() - kKeptShown);
    return fmt::format(
        "{} tensor{} stored wider than the rest stay{} so, to keep their precision: {} ({})",
        kept_.size(), kept_.size() == 1 ? "" : "s", kept_.size() == 1 ? "s" : "", names,
        torch_name(kept_.front()->dtype));
  }

  const Catalog& catalog_;
  std::optional<DType> dtype_;
  DType common_;
  std::vector<const Entry*> kept_;
};

}  // namespace

ExportedTensors stored_tensors(const Catalog& catalog, std::optional<DType> dtype,
                               std::vector<std::string>& warnings) {
  return Rewriter(catalog, dtype).run(warnings);
}

}  // namespace ferry
