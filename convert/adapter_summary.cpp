// What adapters inside a checkpoint are, all together: their ranks and targets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/name_list.h"
#include "convert/adapters.h"

namespace ferry {
namespace {

constexpr size_t kShown = 12;  // targets and the like in a text

void add_once(std::vector<std::string>& list, std::string text) {
  if (!text.empty() && std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::string adapted_module(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

// The last part of a module's name; of Megatron Bridge's parts of a fused one both.
std::string target_of(const std::string& module) {
  const std::string last = last_part(module);
  return last.starts_with("adapter_") ? last_part(adapted_module(module)) + "." + last : last;
}

// The extent that both factors have: [..., rank, in] and [..., out, rank], or of convolutions
// [rank, in, ...] and [out, rank, ...], or both transposed. 0: none.
int64_t rank_of(const Dims& in, const Dims& out) {
  if (in.size() < 2 || out.size() < 2) return 0;
  const bool stacked = in.size() != out.size() || in.size() == 2 || in.front() == out.front();
  if (stacked && in[in.size() - 2] == out.back()) return out.back();
  if (stacked && in.back() == out[out.size() - 2]) return in.back();
  return in.front() == out[1] ? in.front() : 0;
}

class Summary {
 public:
  Summary(const Catalog& catalog, const std::vector<AdapterTensor>& tensors)
      : catalog_(catalog), tensors_(tensors) {}

  AdapterSummary run() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (catalog_.entries[i].role != Role::model) continue;
      tensors_[i].part == AdapterPart::none ? add_own(i) : add(i);
    }
    add_ranks();
    result_.alone = result_.tensors > 0 && !has_own();
    return std::move(result_);
  }

 private:
  struct Factors {
    Dims in, out;
    std::string module;
  };

  void add_own(size_t i) {
    const AdapterTensor& tensor = tensors_[i];
    result_.wrapped += tensor.wrapped;
    const Dims& shape = catalog_.entries[i].shape;
    if (tensor.wrapped && shape.size() == 3) stacks_[adapted_module(tensor.name)] = shape.front();
  }

  void add(size_t i) {
    const AdapterTensor& tensor = tensors_[i];
    const Entry& entry = catalog_.entries[i];
    ++result_.tensors;
    result_.parameters = checked_add(result_.parameters, entry.elements(), entry.name);
    modules_.insert(tensor.name);
    add_once(result_.names, tensor.adapter);
    switch (tensor.part) {
      case AdapterPart::factor_in:
      case AdapterPart::factor_out: {
        low_rank_ = true;
        Factors& factors = factors_[{tensor.name, tensor.kind, tensor.adapter}];
        factors.module = tensor.name;
        // A bias of lora_B is of one axis.
        if (entry.shape.size() < 2) return;
        (tensor.part == AdapterPart::factor_in ? factors.in : factors.out) = entry.shape;
        break;
      }
      case AdapterPart::magnitude:
        magnitudes_ = true;
        break;
      case AdapterPart::replacement:
        return add_once(result_.replaced, target_of(tensor.name));
      case AdapterPart::other:
        add_once(result_.methods, tensor.kind);
        break;
      case AdapterPart::none:
        return;
    }
    add_once(result_.targets, target_of(tensor.name));
  }

  void add_ranks() {
    std::set<int64_t> ranks;
    for (const auto& [key, factors] : factors_) {
      int64_t rank = rank_of(factors.in, factors.out);
      const auto stack = stacks_.find(factors.module);
      const bool fused = stack != stacks_.end() && factors.in.size() == 2 && stack->second > 0;
      if (fused && rank % stack->second == 0) rank /= stack->second;
      if (rank > 0) ranks.insert(rank);
    }
    result_.ranks.assign(ranks.begin(), ranks.end());
    if (!low_rank_ && !magnitudes_) return;
    result_.methods.insert(result_.methods.begin(), magnitudes_ ? "DoRA" : "LoRA");
  }

  // Whether most of the adapted modules have tensors of the model's own: an adapter's file may have
  // a resized embedding next to what adapts it.
  bool has_own() const {
    if (modules_.contains("")) return true;
    std::unordered_set<std::string_view> found;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].part != AdapterPart::none) continue;
      for (const std::string_view module : modules_around(tensors_[i].name)) {
        if (const auto at = modules_.find(module); at != modules_.end()) found.insert(*at);
      }
    }
    return 2 * found.size() >= modules_.size();
  }

  const Catalog& catalog_;
  const std::vector<AdapterTensor>& tensors_;
  AdapterSummary result_;
  bool low_rank_ = false, magnitudes_ = false;
  std::unordered_set<std::string_view> modules_;     // that are adapted
  std::unordered_map<std::string, int64_t> stacks_;  // experts of modules with 3-D parameters
  std::map<std::tuple<std::string, std::string, std::string>, Factors> factors_;
};

}  // namespace

AdapterSummary summarise(const Catalog& catalog, const std::vector<AdapterTensor>& tensors) {
  return Summary(catalog, tensors).run();
}

bool has_adapter(const Catalog& catalog) {
  return summarise(catalog, adapter_tensors(catalog)).any();
}

std::string to_text(const AdapterSummary& adapter) {
  const std::vector<std::string>& methods = adapter.methods;
  std::string text = methods.empty() ? "trained copies" : methods.front();
  if (!adapter.ranks.empty()) {
    text += fmt::format(" of rank{} {}", adapter.ranks.size() > 1 ? "s" : "",
                        fmt::join(adapter.ranks, ", "));
  }
  if (!adapter.targets.empty()) text += " on " + some_of(adapter.targets, kShown);
  if (methods.size() > 1) text += ", with " + some_of({methods.begin() + 1, methods.end()}, kShown);
  if (!adapter.replaced.empty()) {
    text += methods.empty() ? " of " : ", with trained copies of ";
    text += some_of(adapter.replaced, kShown);
  }
  if (adapter.names.size() > 1)
    text += fmt::format(" (adapters {})", some_of(adapter.names, kShown));
  return text;
}

}  // namespace ferry
