#include "convert/export/export_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "convert/model/constant.h"
#include "convert/model/mismatch.h"
#include "convert/model/rounded_sums.h"
#include "convert/model/transforms.h"

namespace ferry {
namespace {

class Tensors {
 public:
  Tensors(const Catalog& catalog, const Family& family, const Architecture& architecture,
          std::optional<DType> dtype)
      : catalog_(catalog),
        family_(family),
        a_(architecture),
        dtype_(dtype),
        model_(catalog, architecture) {}

  ExportedTensors run(const std::string& path) {
    const std::vector<Link> links = expand(family_, a_);
    std::vector<std::optional<Located>> located;
    located.reserve(links.size());
    for (const Link& link : links) located.push_back(locate(link));
    misfit_.left_over = model_.unused();
    if (misfit_.any()) {
      fail(ErrorKind::mismatch, "{}: its tensors are not those of family {}:{}", path, family_.name,
           describe(misfit_, family_.name));
    }
    result_.dtype = dtype_.value_or(common_dtype(links, located));
    sums_are_exact_ = rounded(links, located) == 0;
    if (!sums_are_exact_) result_.rounded = rounded(links, located);
    for (size_t i = 0; i < links.size(); ++i) {
      if (located[i]) {
        add(links[i], *located[i]);
      } else {
        add_constant(links[i]);
      }
    }
    return std::move(result_);
  }

 private:
  std::optional<Located> locate(const Link& link) {
    if (link.rule->transform == Transform::constant) return std::nullopt;
    std::optional<Located> found = model_.find(link.megatron);
    if (!found) {
      misfit_.missing.push_back(link.megatron);
      return std::nullopt;
    }
    const bool one_element = link.rule->transform == Transform::single &&
                             element_count(found->shape, link.megatron) == 1;
    if (found->shape != link.shape && !one_element) {
      misfit_.misshapen.push_back(fmt::format("{}: has {}, the arguments say {}", link.megatron,
                                              to_string(found->shape), to_string(link.shape)));
    }
    return found;
  }

  static DType common_dtype(const std::vector<Link>& links,
                            const std::vector<std::optional<Located>>& located) {
    std::map<DType, double> elements;
    for (size_t i = 0; i < links.size(); ++i) {
      if (!located[i] || !is_floating_point(located[i]->dtype)) continue;
      elements[located[i]->dtype] +=
          static_cast<double>(element_count(located[i]->shape, links[i].megatron));
    }
    DType common = DType::f32;
    double most = 0;
    for (const auto& [dtype, count] : elements) {
      if (count > most) {
        most = count;
        common = dtype;
      }
    }
    return common;
  }

  // Elements of norms that the dtypes they become do not hold. Norms of all layers may be one
  // entry.
  int64_t rounded(const std::vector<Link>& links,
                  const std::vector<std::optional<Located>>& located) const {
    std::unordered_set<uint32_t> seen;
    int64_t elements = 0;
    for (size_t i = 0; i < links.size(); ++i) {
      if (!located[i] || links[i].addend == 0) continue;
      const uint32_t entry = located[i]->parts.front().entry;
      if (!seen.insert(entry).second) continue;
      const DType dtype = dtype_of(links[i], located[i]->dtype, links[i].megatron);
      elements += rounded_sums(catalog_, catalog_.entries[entry], links[i].addend, dtype);
    }
    return elements;
  }

  DType dtype_of(const Link& link, DType stored, const std::string& name) const {
    DType dtype = stored;
    if (link.fp32) {
      dtype = DType::f32;
    } else if (dtype_ && is_floating_point(stored)) {
      dtype = *dtype_;
    } else if (link.addend != 0 && !sums_are_exact_) {
      dtype = DType::f32;  // 16 bits that hold a number near 0 may not hold it plus 1
    }
    if (!can_convert(stored, dtype)) {
      fail(ErrorKind::unsupported, "tensor {}: {} cannot be written as {}", name,
           torch_name(stored), torch_name(dtype));
    }
    return dtype;
  }

  // A new one, or the one that has the experts before.
  ExportedTensor& tensor_of(const Link& link, size_t part) {
    const std::string& name = link.hugging_face[part];
    if (link.expert < 0) {
      result_.tensors.emplace_back().entry.name = name;
      return result_.tensors.back();
    }
    const auto [at, added] = positions_.emplace(name, result_.tensors.size());
    if (added) result_.tensors.emplace_back().entry.name = name;
    return result_.tensors[at->second];
  }

  void add(const Link& link, const Located& located) {
    Link actual = link;
    actual.shape = located.shape;
    const std::vector<Part> parts = parts_of(actual, a_);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (is_repeated(link, i)) {
        drop(located, element_count(parts[i].shape, link.megatron));
        continue;
      }
      ExportedTensor& tensor = tensor_of(link, i);
      tensor.entry.shape = parts[i].shape;
      tensor.entry.dtype = dtype_of(link, located.dtype, link.megatron);
      Recipe& recipe = tensor.recipe;
      // Experts that are stacked on both sides share their inputs.
      std::vector<uint32_t> entries;
      for (const Placed& part : located.parts) entries.push_back(part.entry);
      const bool is_same = recipe.inputs.size() >= entries.size() &&
                           std::equal(entries.rbegin(), entries.rend(), recipe.inputs.rbegin());
      if (!is_same) recipe.inputs.insert(recipe.inputs.end(), entries.begin(), entries.end());
      const auto first = static_cast<uint32_t>(recipe.inputs.size() - entries.size());
      for (const Move& move : parts[i].moves) {
        for (Move& piece : from_entries(move, located, first)) {
          recipe.moves.push_back(std::move(piece));
        }
      }
      for (uint32_t input = 0; link.addend != 0 && input < recipe.inputs.size(); ++input) {
        recipe.addends.push_back({input, link.addend});
      }
    }
    for (const Box& box : left_at_zero(actual, a_)) {
      drop(located, element_count(box.size, link.megatron));
    }
    if (link.rule->transform != Transform::vocabulary) return;
    const int64_t width = element_count(located.shape, link.megatron) / located.shape[0];
    const int64_t rows = link.rule->copies ? -a_.vocab : located.shape[0] - a_.vocab;
    if (rows != 0) result_.dropped.push_back({located.parts.front().entry, rows * width});
  }

  void drop(const Located& located, int64_t elements) {
    result_.dropped.push_back({located.parts.front().entry, elements});
  }

  void add_constant(const Link& link) {
    ExportedTensor tensor;
    tensor.entry.name = link.hugging_face.front();
    tensor.entry.shape = link.shape;
    tensor.entry.dtype = link.fp32 ? DType::f32 : result_.dtype;
    if (link.rule->value == 0) {
      tensor.recipe.zeros.push_back(Box::whole(link.shape));
    } else {
      tensor.constant = constant_bytes(link.rule->value, tensor.entry.dtype,
                                       element_count(link.shape, tensor.entry.name));
    }
    result_.tensors.push_back(std::move(tensor));
  }

  const Catalog& catalog_;
  const Family& family_;
  const Architecture& a_;
  std::optional<DType> dtype_;
  MegatronModel model_;
  bool sums_are_exact_ = true;  // in the dtypes that norms have
  Misfit misfit_;
  std::unordered_map<std::string, size_t> positions_;  // of tensors of all experts
  ExportedTensors result_;
};

}  // namespace

ExportedTensors export_tensors(const Catalog& catalog, const Family& family,
                               const Architecture& architecture, std::optional<DType> dtype,
                               const std::string& path) {
  return Tensors(catalog, family, architecture, dtype).run(path);
}

}  // namespace ferry
