#include "convert/rewrite/stored_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr std::string_view kScaleEnd = "_scale_inv";
constexpr size_t kKeptShown = 3;  // names in a warning

bool is_float8(const Entry& entry) {
  return is_floating_point(entry.dtype) && size_bytes(entry.dtype) == 1;
}

class Rewriter {
 public:
  Rewriter(const Catalog& catalog, const StoredTensorOptions& options, const std::string& path)
      : catalog_(catalog), options_(options), path_(path) {
    for (uint32_t i = 0; i < catalog.entries.size(); ++i) {
      positions_.emplace(catalog.entries[i].name, i);
    }
    common_ = common_dtype();
  }

  ExportedTensors run(std::vector<std::string>& warnings) {
    ExportedTensors result;
    result.dtype = options_.dtype.value_or(common_);
    for (uint32_t i = 0; i < catalog_.entries.size(); ++i) {
      if (!is_used_up(catalog_.entries[i])) result.tensors.push_back(tensor(i));
    }
    if (!kept_.empty()) warnings.push_back(kept_warning());
    return result;
  }

 private:
  // Of most elements; those of quantised weights stand for bf16.
  DType common_dtype() const {
    std::map<DType, double> elements;
    for (const Entry& entry : catalog_.entries) {
      if (!is_floating_point(entry.dtype) || is_scales(entry)) continue;
      const DType dtype = is_float8(entry) ? DType::bf16 : entry.dtype;
      elements[dtype] += static_cast<double>(entry.elements());
    }
    const auto most =
        std::max_element(elements.begin(), elements.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == elements.end() ? DType::f32 : most->first;
  }

  // The weight that a tensor of scales belongs to.
  const Entry* weight_of(const Entry& scales) const {
    if (!scales.name.ends_with(kScaleEnd)) return nullptr;
    const std::string_view weight =
        std::string_view(scales.name).substr(0, scales.name.size() - kScaleEnd.size());
    const auto found = positions_.find(weight);
    return found == positions_.end() ? nullptr : &catalog_.entries[found->second];
  }
  bool is_scales(const Entry& entry) const {
    const Entry* weight = weight_of(entry);
    return weight != nullptr && is_float8(*weight);
  }
  bool is_used_up(const Entry& entry) const { return options_.dtype && is_scales(entry); }

  ExportedTensor tensor(uint32_t position) {
    const Entry& stored = catalog_.entries[position];
    ExportedTensor tensor;
    tensor.entry.name = stored.name;
    tensor.entry.shape = stored.shape;
    tensor.entry.dtype = dtype_of(stored);
    tensor.recipe.inputs = {position};
    tensor.recipe.moves = {copy_all(stored.shape)};
    if (options_.dtype && is_float8(stored)) {
      tensor.recipe.scales.push_back({0, scales_of(stored), block_of(stored)});
    }
    return tensor;
  }

  DType dtype_of(const Entry& stored) {
    if (!options_.dtype || !is_floating_point(stored.dtype)) return stored.dtype;
    const DType wanted = *options_.dtype;
    if (is_float8(stored)) return wanted;
    const bool is_kept = size_bytes(stored.dtype) > size_bytes(common_) &&
                         size_bytes(stored.dtype) > size_bytes(wanted);
    if (is_kept) {
      kept_.push_back(&stored);
      return stored.dtype;
    }
    if (!can_convert(stored.dtype, wanted)) {
      fail(ErrorKind::unsupported, "tensor {}: {} cannot be written as {}", stored.name,
           torch_name(stored.dtype), torch_name(wanted));
    }
    return wanted;
  }

  uint32_t scales_of(const Entry& weight) const {
    const auto found = positions_.find(weight.name + std::string(kScaleEnd));
    if (found != positions_.end()) return found->second;
    fail(ErrorKind::mismatch,
         "{}: tensor {} is of {}, but the model holds no scales {}{}, without which its values are "
         "not known",
         path_, weight.name, torch_name(weight.dtype), weight.name, kScaleEnd);
  }

  Dims block_of(const Entry& weight) const {
    Dims block = options_.quantisation ? options_.quantisation->fp8_block : Dims();
    if (block.empty()) {
      fail(ErrorKind::mismatch,
           "{}: tensor {} is of {}, but config.json has no quantization_config with the size of "
           "its blocks (weight_block_size)",
           path_, weight.name, torch_name(weight.dtype));
    }
    if (weight.shape.size() > block.size()) {
      block.insert(block.begin(), weight.shape.size() - block.size(), 1);
    }
    return block;
  }

  std::string kept_warning() const {
    std::string names;
    for (size_t i = 0; i < kept_.size() && i < kKeptShown; ++i) {
      names += (i > 0 ? ", " : "") + kept_[i]->name;
    }
    if (kept_.size() > kKeptShown) names += fmt::format(" and {} more", kept_.size() - kKeptShown);
    return fmt::format(
        "{} tensor{} stored wider than the rest stay{} so, as their precision is wanted: {} ({})",
        kept_.size(), kept_.size() == 1 ? "" : "s", kept_.size() == 1 ? "s" : "", names,
        torch_name(kept_.front()->dtype));
  }

  const Catalog& catalog_;
  const StoredTensorOptions& options_;
  const std::string& path_;
  std::unordered_map<std::string_view, uint32_t> positions_;
  DType common_ = DType::f32;
  std::vector<const Entry*> kept_;
};

}  // namespace

ExportedTensors stored_tensors(const Catalog& catalog, const StoredTensorOptions& options,
                               const std::string& path, std::vector<std::string>& warnings) {
  return Rewriter(catalog, options, path).run(warnings);
}

}  // namespace ferry
