#include "convert/model/quantised_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/core/quantised.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/quantised_tensors.h"

namespace ferry {
namespace {

constexpr int64_t kMxBlock = 32, kNvBlock = 16;
constexpr int64_t kLeastGroup = 16;  // of columns that have one scale, where only shapes say it
constexpr uint64_t kMostShapeBytes = 64;
constexpr std::string_view kBlocksEnd = "_blocks";  // of gpt-oss's experts
// Values of these programs are read from tables or by orders that are not read here.
constexpr std::string_view kOtherCodes[] = {".qweight", ".W_q", ".codes"};
constexpr std::string_view kOtherScales[] = {".absmax", ".SCB", ".scales"};

bool is_float8(const Entry& entry) {
  return is_floating_point(entry.dtype) && size_bytes(entry.dtype) == 1 &&
         can_convert(entry.dtype, DType::f32);
}

bool ends_with_one_of(const std::string& name, std::span<const std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

std::string described(const Entry& entry) {
  return fmt::format("{} ({} of {})", entry.name, torch_name(entry.dtype), to_string(entry.shape));
}

std::string next_step() {
  return fmt::format(
      "values are made of 8-bit floats with scales, of MXFP4 and NVFP4, and of integers packed by "
      "compressed-tensors: take the model that is not quantised, or, for a copy with these weights "
      "as they are, {} without {} and {}",
      option("to", "hugging_face"), option("dtype"), option("quantise"));
}

// Positions of the parts of a weight; the codes are at its own.
struct WeightParts {
  std::optional<uint32_t> scales, second, zeros, shape, other;
  bool divides = false;
};

class Builder {
 public:
  Builder(const Catalog& catalog, const std::optional<Quantisation>& quantisation,
          const std::string& path)
      : catalog_(catalog),
        quantisation_(quantisation),
        path_(path),
        parts_(quantised_parts(catalog, quantisation ? quantisation->bits : 0)),
        weights_(parts_.size()) {}

  QuantisedValues run() {
    for (uint32_t i = 0; i < parts_.size(); ++i) sort_in(i);
    check_scales();
    QuantisedValues result;
    Catalog values;
    values.file_system = catalog_.file_system;
    values.files = catalog_.files;
    values.objects = catalog_.objects;
    values.locator = catalog_.locator;
    values.reader_locks = catalog_.reader_locks;
    for (uint32_t i = 0; i < parts_.size(); ++i) {
      const QuantisedRole role = parts_[i].role;
      if (role == QuantisedRole::none) {
        values.entries.push_back(catalog_.entries[i]);
      } else if (parts_[i].values == i) {
        values.entries.push_back(values_of(i));
      }
    }
    if (quantisation_ && !quantisation_->is_known) {
      fail(ErrorKind::unsupported,
           "{}: the weights are quantised by {}, as config.json says, of which no values can be "
           "made here; {}",
           path_, to_text(*quantisation_), next_step());
    }
    result.any = !forms_.empty();
    result.left_out = left_out();
    std::vector<std::string> forms;
    for (const auto& [form, count] : forms_) {
      forms.push_back(fmt::format("{} ({} weight{})", form, count, count == 1 ? "" : "s"));
    }
    result.forms = fmt::format("{}", fmt::join(forms, ", "));
    result.catalog = std::move(values);
    return result;
  }

 private:
  [[noreturn]] void refuse(uint32_t found) const {
    const Entry& entry = catalog_.entries[found];
    const QuantisedPart& part = parts_[found];
    std::string text = described(entry);
    if (part.values && *part.values != found) {
      text += " of " + described(catalog_.entries[*part.values]);
    } else if (weights_[found].scales) {
      text += " with scales " + described(catalog_.entries[*weights_[found].scales]);
    }
    fail(ErrorKind::unsupported,
         "{}: the weights are quantised{}: found {}, of which no values can be made here; {}",
         path_, quantisation_ ? " by " + to_text(*quantisation_) : "", text, next_step());
  }

  void sort_in(uint32_t position) {
    const QuantisedPart& part = parts_[position];
    if (part.role == QuantisedRole::none) note_without_scales(catalog_.entries[position]);
    const auto add = [&](std::optional<uint32_t> WeightParts::*place) {
      if (!part.values) {
        fail(ErrorKind::mismatch,
             "{}: tensor {} holds {}, but the weight that they belong to is missing, or is not "
             "quantised: a part of the model is of another one; download it again",
             path_, described(catalog_.entries[position]),
             part.role == QuantisedRole::zero_points ? "zero points" : "scales");
      }
      auto& at = weights_[*part.values].*place;
      if (at) refuse(position);
      at = position;
    };
    switch (part.role) {
      case QuantisedRole::weight_scale:
        return add(&WeightParts::scales);
      case QuantisedRole::second_divisor:
        if (part.values) weights_[*part.values].divides = true;
        [[fallthrough]];
      case QuantisedRole::second_scale:
        return add(&WeightParts::second);
      case QuantisedRole::zero_points:
        return add(&WeightParts::zeros);
      case QuantisedRole::shape:
        if (part.values) weights_[*part.values].shape = position;
        return;
      case QuantisedRole::other:
        if (!part.values) refuse(position);
        weights_[*part.values].other = position;
        return;
      case QuantisedRole::activation_scale:
      case QuantisedRole::cache_scale:
        if (computing_++ == 0) computing_example_ = position;
        return;
      default:
        return;
    }
  }

  void note_without_scales(const Entry& entry) {
    if (entry.role != Role::model || !is_float8(entry) || entry.dtype == DType::f8_e8m0) return;
    if (without_scales_++ == 0) first_without_ = &entry;
  }

  void check_scales() const {
    if (without_scales_ == 0) return;
    const Entry& entry = *first_without_;
    fail(ErrorKind::mismatch,
         "{}: tensor {} is of {}, but the model holds no scales of it (such as {}_scale_inv), "
         "without which its values are not known{}; download it again",
         path_, entry.name, torch_name(entry.dtype), entry.name,
         without_scales_ == 1 ? "" : fmt::format(", and so of {} more", without_scales_ - 1));
  }

  Entry values_of(uint32_t position) {
    const QuantisedPart& part = parts_[position];
    const WeightParts& weight = weights_[position];
    const Entry& codes = catalog_.entries[position];
    if (part.role == QuantisedRole::integers || weight.other) {
      refuse(weight.other ? *weight.other : position);
    }
    if (!weight.scales) {
      fail(ErrorKind::mismatch,
           "{}: tensor {} holds packed values, but the model has no scales of them, without which "
           "they are not known; download it again",
           path_, described(codes));
    }
    const Entry& scales = catalog_.entries[*weight.scales];
    if (ends_with_one_of(codes.name, kOtherCodes) || ends_with_one_of(scales.name, kOtherScales)) {
      refuse(position);
    }
    Quantised form;
    form.codes = codes;
    form.scales = scales;
    form.divides = weight.divides;
    if (weight.second) form.global = catalog_.entries[*weight.second];
    if (weight.zeros) form.zeros = catalog_.entries[*weight.zeros];
    Entry values{part.parameter, DType::bf16, {}, {}, codes.role};
    describe(position, form, values);
    values.quantised = std::make_shared<const Quantised>(std::move(form));
    check_quantised(values);
    return values;
  }

  void describe(uint32_t position, Quantised& form, Entry& values) {
    const bool is_packed = parts_[position].role == QuantisedRole::packed;
    const bool is_word = form.codes.dtype == DType::i32;
    if (!is_packed) {
      if (!is_float8(form.codes) && form.codes.dtype != DType::i8) refuse(position);
      values.shape = form.codes.shape;
      form.block = block_of(form, values.shape);
      return note(are_exponents(form.scales.dtype) && form.block.back() == kMxBlock ? "MXFP8"
                  : is_float8(form.codes)                                           ? "fp8"
                                                                                    : "int8");
    }
    if (is_word) {
      form.code = parts_[position].bits == 4 ? Code::u4 : Code::u8;
      form.zero = form.code == Code::u4 ? 8 : 128;
      if (parts_[position].bits != 4 && parts_[position].bits != 8) refuse(position);
      values.shape = shape_of_words(position, form);
      form.block = block_of(form, values.shape);
      const DType scale = form.scales.dtype;
      if (scale == DType::f16 || scale == DType::bf16) values.dtype = scale;
      return note(form.code == Code::u4 ? "int4" : "int8");
    }
    form.code = Code::e2m1;
    if (form.codes.name.ends_with(kBlocksEnd)) flatten_blocks(form);
    values.shape = form.codes.shape;
    if (values.shape.empty() || form.zeros) refuse(position);
    values.shape.back() *= 2;
    form.block = block_of(form, values.shape);
    if (form.transposed) values.shape = form.in_codes(std::move(values.shape));
    note(are_exponents(form.scales.dtype) ? "MXFP4" : "NVFP4");
  }

  // [..., rows, blocks, bytes of a block] -> [..., rows, bytes]; the parameter is the transposed
  // matrix.
  void flatten_blocks(Quantised& form) const {
    Entry& codes = form.codes;
    const size_t rank = codes.shape.size();
    const bool is_whole = codes.chunks.size() == 1 && codes.chunks[0].strides.empty() &&
                          codes.chunks[0].extent.encoding == Encoding::raw &&
                          codes.chunks[0].box == Box::whole(codes.shape) &&
                          !codes.chunks[0].is_run();
    if (rank < 3 || !is_whole || codes.shape.back() * 2 != kMxBlock) {
      fail(ErrorKind::mismatch,
           "{}: tensor {} should be [..., rows, blocks, {}], in one piece of a safetensors file",
           path_, described(codes), kMxBlock / 2);
    }
    Dims shape = codes.shape;
    shape.pop_back();
    shape.back() = element_count({shape.back(), kMxBlock / 2}, codes.name);
    codes.shape = shape;
    codes.chunks[0].box = Box::whole(shape);
    form.transposed = true;
  }

  // Columns in words of 32 bits: the last word of a row may hold fewer than it could.
  Dims shape_of_words(uint32_t position, const Quantised& form) const {
    Dims shape = form.codes.shape;
    if (shape.empty()) refuse(position);
    const int64_t in_word = form.codes_per_element();
    shape.back() = element_count({shape.back(), in_word}, form.codes.name);
    const Dims& scales = form.scales.shape;
    const int64_t group = quantisation_ ? quantisation_->group : 0;
    if (group > 0 && scales.size() == shape.size()) {
      const int64_t columns = element_count({scales.back(), group}, form.scales.name);
      if (shape.back() - columns < in_word && columns <= shape.back()) shape.back() = columns;
    } else if (weights_[position].shape && (scales.empty() || scales.back() == 1)) {
      shape.back() = stored_columns(catalog_.entries[*weights_[position].shape], shape);
    }
    return shape;
  }

  int64_t stored_columns(const Entry& entry, const Dims& most) const {
    const bool is_wide = entry.dtype == DType::i64;
    if ((!is_wide && entry.dtype != DType::i32) ||
        entry.shape != Dims{static_cast<int64_t>(most.size())}) {
      fail(ErrorKind::mismatch, "{}: tensor {} is not a shape of a tensor of {} axes", path_,
           described(entry), most.size());
    }
    const std::string bytes = read_tensor(catalog_, entry, kMostShapeBytes);
    const size_t size = is_wide ? sizeof(int64_t) : sizeof(int32_t);
    int64_t columns = 0;
    std::memcpy(&columns, bytes.data() + bytes.size() - size, size);
    if (columns > 0 && columns <= most.back()) return columns;
    fail(ErrorKind::mismatch, "{}: tensor {} says {} columns, of which {} have room", path_,
         entry.name, columns, most.back());
  }

  // The extents of a block of which there is one scale each.
  Dims block_of(const Quantised& form, const Dims& shape) const {
    Dims given = quantisation_ ? quantisation_->block : Dims();
    if (!given.empty() && shape.size() >= given.size()) {
      given.insert(given.begin(), shape.size() - given.size(), 1);
      Dims grid = block_grid(shape, given), scales = form.scales.shape;
      std::erase(grid, 1);
      std::erase(scales, 1);
      if (grid == scales) return given;
    }
    Dims found = block_by_shapes(form, shape);
    if (found.size() == shape.size()) return found;
    if (given.size() == shape.size()) return given;  // for the message that they do not fit
    fail(ErrorKind::mismatch,
         "{}: tensor {} is of {} and {} with scales of {}, but config.json has no "
         "quantization_config with the size of its blocks (weight_block_size)",
         path_, form.codes.name, torch_name(form.codes.dtype), to_string(form.codes.shape),
         to_string(form.scales.shape));
  }

  // Scales have the weight's axes, or the first of them; each is one of the whole axis or one an
  // element. Along the last axis groups of a micro-format may have one each.
  static Dims block_by_shapes(const Quantised& form, const Dims& shape) {
    Dims scales = form.scales.shape;
    Dims block = shape;
    const bool has_groups = !scales.empty() && scales.size() == shape.size() && scales.back() > 1 &&
                            scales.back() < shape.back();
    if (has_groups) {
      const int64_t group = shape.back() / scales.back();
      const bool is_exact = group * scales.back() == shape.back();
      const bool is_packed = form.code != Code::element;
      const bool is_micro = are_exponents(form.scales.dtype) ? group == kMxBlock
                            : form.code == Code::e2m1        ? group == kNvBlock
                                                             : is_packed && group >= kLeastGroup;
      if (!is_exact || !is_micro) return {};
      block.back() = group;
      scales.pop_back();
    }
    while (!scales.empty() && scales.back() == 1 && !has_groups) scales.pop_back();
    if (scales.size() > shape.size()) return {};
    for (size_t axis = 0; axis < scales.size(); ++axis) {
      if (scales[axis] == shape[axis]) {
        block[axis] = 1;
      } else if (scales[axis] != 1 || has_groups) {
        return {};
      }
    }
    for (int64_t& extent : block) extent = std::max<int64_t>(extent, 1);
    return block;
  }

  void note(std::string_view form) { ++forms_[form]; }

  std::string left_out() const {
    if (computing_ == 0) return {};
    const bool one = computing_ == 1;
    return fmt::format(
        "{} scale{} of activations and caches {} left out, which say how a quantised model "
        "computes: {}{}",
        computing_, one ? "" : "s", one ? "is" : "are", catalog_.entries[computing_example_].name,
        one ? "" : ", ...");
  }

  const Catalog& catalog_;
  const std::optional<Quantisation>& quantisation_;
  const std::string& path_;
  std::vector<QuantisedPart> parts_;
  std::vector<WeightParts> weights_;  // of each entry that holds codes
  std::map<std::string_view, int64_t> forms_;
  int64_t without_scales_ = 0;
  const Entry* first_without_ = nullptr;
  int64_t computing_ = 0;  // scales of activations and caches
  uint32_t computing_example_ = 0;
};

}  // namespace

QuantisedValues values_of(const SharedCatalog& catalog,
                          const std::optional<Quantisation>& quantisation,
                          const std::string& path) {
  QuantisedValues values = Builder(*catalog, quantisation, path).run();
  if (!values.any && values.left_out.empty()) values.catalog = catalog;
  return values;
}

QuantisedValues values_of(const Checkpoint& checkpoint) {
  std::optional<Quantisation> quantisation;
  if (checkpoint.format == Format::hugging_face) {
    const FileSystem& files = *checkpoint.catalog->file_system;
    const auto config = read_hugging_face_config(files, checkpoint.path);
    quantisation = quantisation_of(config.get(), files, checkpoint.path);
  }
  return values_of(checkpoint.catalog, quantisation, checkpoint.path);
}

bool has_quantised_weights(const Catalog& catalog) {
  const std::vector<QuantisedPart> parts = quantised_parts(catalog);
  for (uint32_t i = 0; i < parts.size(); ++i) {
    if (parts[i].role != QuantisedRole::none && parts[i].values == i) return true;
  }
  return false;
}

std::string quantisation_mismatch(const std::optional<Quantisation>& quantisation,
                                  bool is_quantised) {
  constexpr std::string_view kSeenInTensors[] = {"fp8", "mxfp4", "gptq", "awq"};
  if (!quantisation && is_quantised) {
    return "weights are quantised, but config.json has no quantization_config, without which "
           "programs do not know their values";
  }
  if (!quantisation || is_quantised ||
      std::ranges::find(kSeenInTensors, quantisation->method) == std::end(kSeenInTensors)) {
    return {};
  }
  return fmt::format(
      "config.json says that the weights are quantised by {}, but no tensor is: programs will not "
      "load them as they are",
      to_text(*quantisation));
}

}  // namespace ferry
