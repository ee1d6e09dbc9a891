#include "ckpt/format/hugging_face/quantised_tensors.h"

#include <string_view>
#include <unordered_map>
#include <utility>

namespace ferry {
namespace {

using Part = QuantisedRole;

// The end of the name of a part that does not hold the values.
struct PartEnd {
  std::string_view end;
  QuantisedRole role = Part::other;
  bool needs_values = false;  // otherwise it is such a part wherever it is
};

// Where one end is the end of another, the longer one comes first.
constexpr PartEnd kPartEnds[] = {
    {".weight_global_scale", Part::second_divisor},
    {".input_global_scale", Part::activation_scale},
    {".activation_scale", Part::activation_scale},
    {"_activation_scale", Part::activation_scale, true},
    {".input_scale", Part::activation_scale},
    {"_input_scale", Part::activation_scale, true},
    {".output_scale", Part::activation_scale},
    {".input_zero_point", Part::activation_scale},
    {".output_zero_point", Part::activation_scale},
    {".k_zero_point", Part::cache_scale},
    {".v_zero_point", Part::cache_scale},
    {".k_scale", Part::cache_scale},
    {".v_scale", Part::cache_scale},
    {".q_scale", Part::cache_scale},
    {".kv_scale", Part::cache_scale},
    {".prob_scale", Part::cache_scale},
    {".weight_scale_2", Part::second_scale},
    {"_weight_scale_2", Part::second_scale, true},
    {".weight_scale", Part::weight_scale},
    {"_weight_scale", Part::weight_scale, true},
    {"_scale_inv", Part::weight_scale},
    {".weight_zero_point", Part::zero_points},
    {".weight_shape", Part::shape},
    {".pre_quant_scale"},
    {".weight_g_idx"},
    {".weight_format"},
    {".qzeros"},
    {".g_idx"},
    {".zero", Part::other, true},
    {".nested_absmax"},
    {".nested_quant_map"},
    {".quant_map"},
    {".absmax", Part::weight_scale},
    {".SCB", Part::weight_scale},
    {".codebooks", Part::other, true},
    {".scales", Part::weight_scale, true},
    {"_scales", Part::weight_scale, true},
    {"._scale", Part::weight_scale, true},
    {".scale", Part::weight_scale, true},
    {"_scale", Part::weight_scale, true},
};
constexpr std::string_view kQuantState = ".quant_state.bitsandbytes__";

// How the name of the values ends where the name of a part has its end, and that of the parameter.
struct ValuesEnd {
  std::string_view end, parameter;
};
constexpr ValuesEnd kValuesEnds[] = {{".weight", ".weight"},
                                     {".weight_packed", ".weight"},
                                     {".qweight", ".weight"},
                                     {"_blocks", ""},
                                     {"_packed", ""},
                                     {".codes", ".weight"},
                                     {".W_q", ".weight"},
                                     {"._data", ""},
                                     {"", ""}};

bool holds_float8(const Entry& entry) {
  return is_floating_point(entry.dtype) && size_bytes(entry.dtype) == 1 &&
         entry.dtype != DType::f4x2 && entry.dtype != DType::f8_e8m0;
}

bool may_be_values(const Entry& entry) {
  const DType dtype = entry.dtype;
  return holds_float8(entry) || dtype == DType::f4x2 || dtype == DType::u8 || dtype == DType::i8 ||
         dtype == DType::i16 || dtype == DType::i32;
}

// Bits of a value of which `elements` are packed in integers that hold `stored` bits in all.
int64_t bits_of(int64_t stored, int64_t elements, int64_t otherwise) {
  const bool fits =
      elements > 0 && stored % elements == 0 && stored / elements >= 1 && stored / elements <= 8;
  return fits ? stored / elements : otherwise;
}

class PartFinder {
 public:
  PartFinder(const Catalog& catalog, int64_t known_bits)
      : catalog_(catalog),
        known_(known_bits >= 1 && known_bits <= 8 ? known_bits : 0),
        parts_(catalog.entries.size()) {
    positions_.reserve(catalog.entries.size());
    for (uint32_t i = 0; i < catalog.entries.size(); ++i) {
      if (catalog.entries[i].role == Role::model) positions_.emplace(catalog.entries[i].name, i);
    }
  }

  std::vector<QuantisedPart> run() {
    const auto count = static_cast<uint32_t>(parts_.size());
    const auto is_model = [&](uint32_t i) { return catalog_.entries[i].role == Role::model; };
    for (uint32_t i = 0; i < count; ++i) {
      if (is_model(i)) find_packed(i);
    }
    for (uint32_t i = 0; i < count; ++i) {
      if (is_model(i)) find_part(i);
    }
    for (uint32_t i = 0; i < count; ++i) {
      if (parts_[i].role == Part::none) parts_[i].parameter = catalog_.entries[i].name;
    }
    return std::move(parts_);
  }

 private:
  const Entry* sibling(std::string_view base, std::string_view end) const {
    const auto at = positions_.find(std::string(base) + std::string(end));
    return at == positions_.end() ? nullptr : &catalog_.entries[at->second];
  }

  // Values whose names, types or neighbours say that an element holds several.
  void find_packed(uint32_t position) {
    const Entry& entry = catalog_.entries[position];
    if (!may_be_values(entry)) return;
    for (const ValuesEnd& kind : kValuesEnds) {
      if (!entry.name.ends_with(kind.end)) continue;
      const auto base = std::string_view(entry.name).substr(0, entry.name.size() - kind.end.size());
      if (const int64_t bits = packed_bits(entry, base, kind.end)) {
        parts_[position] = {Part::packed, std::string(base).append(kind.parameter), position, bits};
        return;
      }
    }
  }

  // 0: an element is one value, or it is not known.
  int64_t packed_bits(const Entry& entry, std::string_view base, std::string_view end) const {
    if (entry.dtype == DType::f4x2) return 4;
    const bool bytes = entry.dtype == DType::u8;
    if (end == ".qweight") return bits_of_qweight(entry, base);
    if (end == ".weight_packed") return bytes ? 4 : bits_of_words(entry, base);
    if (end == "_blocks") return bytes && sibling(base, "_scales") ? 4 : 0;
    if (end != ".weight" || !bytes) return 0;
    const bool is_fp4 = sibling(entry.name, ".absmax") != nullptr ||  // bitsandbytes
                        sibling(base, ".weight_scale_2") != nullptr;  // NVFP4 of ModelOpt
    return is_fp4 ? 4 : 0;
  }

  // GPTQ packs the rows of a weight [in, out] in 32 bits, AWQ its columns; scales are
  // [groups, out].
  int64_t bits_of_qweight(const Entry& entry, std::string_view base) const {
    const int64_t known = known_ > 0 ? known_ : 4;
    if (entry.dtype != DType::i32 || entry.shape.size() != 2) return 0;
    const Entry* scales = sibling(base, ".scales");
    const Entry* order = sibling(base, ".g_idx");
    if (scales && scales->shape.size() == 2 && scales->shape[1] != entry.shape[1]) {
      return bits_of(32 * entry.shape[1], scales->shape[1], known);
    }
    const bool has_order = order && order->shape.size() == 1;
    return has_order ? bits_of(32 * entry.shape[0], order->shape[0], known) : known;
  }

  // compressed-tensors: groups of columns are of 32, 64 or 128 values, of 4 bits unless they say 8.
  // One scale a row leaves it open.
  int64_t bits_of_words(const Entry& entry, std::string_view base) const {
    if (entry.dtype != DType::i32) return 0;
    if (known_ > 0) return known_;
    const Entry* scale = sibling(base, ".weight_scale");
    const bool has_groups =
        scale && scale->shape.size() == 2 && entry.shape.size() == 2 && scale->shape[1] > 1;
    if (!has_groups) return 0;
    return entry.shape[1] / scale->shape[1] >= 32 ? 8 : 4;
  }

  void find_part(uint32_t position) {
    const std::string_view name = catalog_.entries[position].name;
    if (parts_[position].role == Part::packed) return;
    if (const size_t at = name.find(kQuantState); at != std::string_view::npos) {
      add(position, {kQuantState}, name.substr(0, at));
      return;
    }
    for (const PartEnd& kind : kPartEnds) {
      if (!name.ends_with(kind.end)) continue;
      if (add(position, kind, name.substr(0, name.size() - kind.end.size()))) return;
    }
  }

  // False where it needs values, and there are none.
  bool add(uint32_t position, const PartEnd& kind, std::string_view base) {
    QuantisedPart& part = parts_[position];
    for (const ValuesEnd& values : kValuesEnds) {
      if (kind.role == Part::cache_scale) break;
      const auto at = positions_.find(std::string(base).append(values.end));
      if (at == positions_.end() || at->second == position) continue;
      if (!may_be_values(catalog_.entries[at->second])) continue;
      part = {kind.role, std::string(base).append(values.parameter), at->second, 0};
      if (kind.role == Part::weight_scale) add_values(part, catalog_.entries[position]);
      return true;
    }
    if (kind.needs_values) return false;
    part.role = kind.role;
    return true;
  }

  // Values that have a scale.
  void add_values(const QuantisedPart& scale_part, const Entry& scale) {
    QuantisedPart& part = parts_[*scale_part.values];
    if (part.role == Part::packed || part.role == Part::codes) return;
    const Entry& entry = catalog_.entries[*scale_part.values];
    part = {Part::integers, scale_part.parameter, scale_part.values, 0};
    const bool bytes = entry.dtype == DType::i8 || entry.dtype == DType::u8;
    if (holds_float8(entry) || (bytes && (known_ == 8 || scale.name.ends_with(".SCB")))) {
      part.role = Part::codes;
      part.bits = 8;
    } else if (bytes && is_of_mxfp4(entry, scale)) {
      part.role = Part::packed;
      part.bits = 4;
    }
  }

  // A power of two for 32 values of a row, which are 16 bytes.
  static bool is_of_mxfp4(const Entry& entry, const Entry& scale) {
    return (scale.dtype == DType::f8_e8m0 || scale.dtype == DType::u8) && !entry.shape.empty() &&
           scale.shape.size() == entry.shape.size() &&
           entry.shape.back() == 16 * scale.shape.back();
  }

  const Catalog& catalog_;
  int64_t known_;
  std::vector<QuantisedPart> parts_;
  std::unordered_map<std::string_view, uint32_t> positions_;
};

}  // namespace

std::vector<QuantisedPart> quantised_parts(const Catalog& catalog, int64_t known_bits) {
  return PartFinder(catalog, known_bits).run();
}

}  // namespace ferry
