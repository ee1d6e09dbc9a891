#include "convert/model/hugging_face_tensors.h"

#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"
#include "convert/model/numbered_name.h"

namespace ferry {
namespace {

// One expert's tensor in the tensor of all experts of a layer: all of its sub-tensor, or a half.
struct Fused {
  std::string_view one;
  std::string_view all;
  int half;  // -1: there are none
};
constexpr Fused kFused[] = {
    {".gate_proj.weight", ".gate_up_proj", 0}, {".up_proj.weight", ".gate_up_proj", 1},
    {".up_proj.weight", ".up_proj", -1},       {".down_proj.weight", ".down_proj", -1},
    {".w1.weight", ".gate_up_proj", 0},        {".w3.weight", ".gate_up_proj", 1},
    {".w2.weight", ".down_proj", -1}};

// `head`: the module of the output layer, which is outside of the outermost module.
std::string spelled_as_in_rules(std::string_view name, const Family& family,
                                std::string_view head) {
  std::string result(name);
  for (const auto& [rules, other] : family.spellings) {
    if (const size_t at = result.find(other); at != std::string::npos) {
      result.replace(at, other.size(), rules);
    }
  }
  const std::string_view mtp = family.mtp_prefix.substr(0, family.mtp_prefix.find('.') + 1);
  const bool is_mtp = !mtp.empty() && name.starts_with(mtp);
  if (!result.starts_with(family.base_prefix) && !name.starts_with(head) && !is_mtp) {
    result.insert(0, family.base_prefix);
  }
  return result;
}

}  // namespace

HuggingFaceTensors::HuggingFaceTensors(const Catalog& catalog, const Family& family,
                                       const std::string& optimizer_kind)
    : catalog_(catalog), used_(catalog.entries.size(), true) {
  const std::string output = family.output_layer_name();
  const std::string head = output.substr(0, output.rfind('.') + 1);
  const Role role = optimizer_kind.empty() ? Role::model : Role::optimizer;
  const std::string prefix =
      optimizer_kind.empty() ? std::string() : optimizer_entry_name(optimizer_kind, "");
  for (size_t i = 0; i < catalog.entries.size(); ++i) {
    const Entry& entry = catalog.entries[i];
    if (entry.role != role || !entry.name.starts_with(prefix)) continue;
    used_[i] = false;
    const std::string name = entry.name.substr(prefix.size());
    if (!positions_.emplace(spelled_as_in_rules(name, family, head), static_cast<uint32_t>(i))
             .second) {
      fail(ErrorKind::corrupt, "tensor {} stands twice, under two spellings of its name", name);
    }
  }
}

std::optional<uint32_t> HuggingFaceTensors::position(const std::string& name) const {
  const auto found = positions_.find(name);
  if (found == positions_.end()) return std::nullopt;
  return found->second;
}

bool HuggingFaceTensors::has(const std::string& name) const { return positions_.contains(name); }

std::optional<FoundTensor> HuggingFaceTensors::find(const std::string& name,
                                                    const Architecture& architecture) {
  const auto at = position(name);
  if (!at) return find_fused(name, architecture);
  const Entry& entry = catalog_.entries[*at];
  used_[*at] = true;
  return FoundTensor{*at, {}, 0, entry.shape, entry.dtype};
}

std::optional<FoundTensor> HuggingFaceTensors::find_fused(const std::string& name,
                                                          const Architecture& architecture) {
  const auto expert = take_number(name, ".experts.");
  if (!expert) return std::nullopt;
  for (const Fused& fused : kFused) {
    if (!expert->without.ends_with(fused.one)) continue;
    std::string all = expert->without;
    all.replace(all.size() - fused.one.size(), fused.one.size(), fused.all);
    const auto at = position(all);
    if (!at) continue;
    const Entry& entry = catalog_.entries[*at];
    const int64_t halves = fused.half < 0 ? 1 : 2;
    if (entry.shape.size() != 3 || entry.shape[0] != architecture.experts ||
        entry.shape[1] % halves != 0) {
      fail(ErrorKind::mismatch, "tensor {} of shape {} does not hold {} experts of {} rows each",
           entry.name, to_string(entry.shape), architecture.experts,
           halves == 2 ? "an even number of" : "some");
    }
    used_[*at] = true;
    const int64_t rows = entry.shape[1] / halves;
    return FoundTensor{
        *at, {expert->number}, fused.half > 0 ? rows : 0, {rows, entry.shape[2]}, entry.dtype};
  }
  return std::nullopt;
}

std::vector<uint32_t> HuggingFaceTensors::unused() const {
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < used_.size(); ++i) {
    if (!used_[i]) positions.push_back(i);
  }
  return positions;
}

Move from_entry(Move move, const FoundTensor& found) {
  if (!move.in_origin.empty()) move.in_origin[0] += found.row;
  move.in_origin.insert(move.in_origin.begin(), found.at.begin(), found.at.end());
  for (Loop& loop : move.loops) loop.in_axis += static_cast<int>(found.at.size());
  return move;
}

}  // namespace ferry
