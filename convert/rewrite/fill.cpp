#include "convert/rewrite/fill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/core/quantised.h"
#include "ckpt/engine/engine.h"
#include "convert/rewrite/expert_forms.h"
#include "convert/rewrite/stored_tensors.h"

namespace ferry {
namespace {

constexpr std::string_view kFilledHead = "lm_head.";
constexpr std::string_view kHeadEnd = "lm_head.weight";
constexpr std::string_view kEmbeddingEnds[] = {"embed_tokens.weight", "wte.weight",
                                               "word_embeddings.weight"};
constexpr uint64_t kHeadComparisonBytes = uint64_t{16} << 20;

// How a model of several parts spells the names of its language model.
struct PartSpelling {
  std::string own;          // outermost module of the checkpoint's names: "model."
  std::string model, head;  // for that and "lm_head."
};

std::string spelled(const std::string& name, const PartSpelling& spelling) {
  if (name.starts_with(kFilledHead)) return spelling.head + name.substr(kFilledHead.size());
  if (!spelling.own.empty() && name.starts_with(spelling.own)) {
    return spelling.model + name.substr(spelling.own.size());
  }
  return name;
}

class Filler {
 public:
  Filler(const Checkpoint& original, const Catalog& source, ExportedTensors& tensors)
      : original_(original), tensors_(tensors), merged_(source) {
    for (const Entry& entry : original.catalog->entries) stored_.emplace(entry.name, &entry);
    first_ = static_cast<uint32_t>(source.entries.size());
  }

  void spell() {
    PartSpelling best;
    std::vector<std::string> fewest;
    for (PartSpelling& spelling : possible_spellings()) {
      std::vector<std::string> missing = misfits(spelling);
      const bool is_first = best.head.empty();
      if (!is_first && missing.size() >= fewest.size()) {
        if (missing.empty() && fewest.empty()) refuse_twice(best, spelling);
        continue;
      }
      best = std::move(spelling);
      fewest = std::move(missing);
    }
    fewest = missing_names(best);
    if (!fewest.empty()) {
      fail(ErrorKind::mismatch,
           "{}: lacks {} of the {} tensors that the checkpoint gives, so it is not the model that "
           "was trained, or it names or fuses tensors otherwise: {}",
           original_.path, fewest.size(), tensors_.tensors.size(), some_of(fewest));
    }
    for (ExportedTensor& tensor : tensors_.tensors) {
      tensor.entry.name = spelled(tensor.entry.name, best);
    }
    std::optional<bool> transposed;
    for (const std::string& type : model_types(original_)) {
      if (!transposed) transposed = are_experts_transposed(type);
    }
    take_form_of(tensors_.tensors, shapes(), transposed);
  }

  void check_shapes() const {
    for (const ExportedTensor& tensor : tensors_.tensors) {
      const auto found = stored_.find(tensor.entry.name);
      if (found == stored_.end()) {
        fail(ErrorKind::mismatch,
             "{}: lacks tensor {}, which the checkpoint gives: it is not the model that was "
             "trained",
             original_.path, tensor.entry.name);
      }
      const Entry& stored = *found->second;
      if (stored.shape == tensor.entry.shape) continue;
      fail(ErrorKind::mismatch,
           "{}: tensor {} has shape {} there, and {} in the checkpoint: it is not the model that "
           "was trained, or its vocabulary was changed",
           original_.path, stored.name, to_string(stored.shape), to_string(tensor.entry.shape));
    }
  }

  Catalog fill(ExportedTensors all, std::vector<std::string>& warnings) {
    append_original();
    std::unordered_set<std::string_view> given;
    for (const ExportedTensor& tensor : tensors_.tensors) given.insert(tensor.entry.name);
    std::vector<bool> used(original_.catalog->entries.size());
    std::vector<ExportedTensor> added;
    for (ExportedTensor& tensor : all.tensors) {
      const std::string& name = tensor.entry.name;
      if (given.contains(name)) continue;
      if (name.ends_with(kHeadEnd)) {
        if (is_copy_of_embedding(name)) continue;  // of the one before the training
        warnings.push_back(fmt::format(
            "the checkpoint has no output layer: {} is that of {}, which does not tie it to the "
            "embedding",
            name, original_.path));
      }
      for (uint32_t& input : tensor.recipe.inputs)
        used[std::exchange(input, input + first_)] = true;
      added.push_back(std::move(tensor));
    }
    for (uint32_t i = 0; i < used.size(); ++i) {
      if (used[i]) continue;
      tensors_.dropped.push_back({first_ + i, original_.catalog->entries[i].elements()});
    }
    warnings.push_back(what_was_added(added));
    std::move(added.begin(), added.end(), std::back_inserter(tensors_.tensors));
    return std::move(merged_);
  }

 private:
  bool is_copy_of_embedding(const std::string& head) const {
    const auto at = stored_.find(head);
    if (at == stored_.end()) return false;
    return std::ranges::any_of(kEmbeddingEnds, [&](std::string_view end) {
      return std::ranges::any_of(original_.catalog->entries, [&](const Entry& entry) {
        return entry.name.ends_with(end) && entry.shape == at->second->shape &&
               same_elements(original_.catalog, entry, *at->second, kHeadComparisonBytes);
      });
    });
  }

  // The outermost module may have any prefix under which its longest name stands, and the output
  // layer any part of that.
  std::vector<PartSpelling> possible_spellings() const {
    std::string longest;
    for (const ExportedTensor& tensor : tensors_.tensors) {
      const std::string& name = tensor.entry.name;
      if (!name.starts_with(kFilledHead) && name.size() > longest.size()) longest = name;
    }
    const size_t dot = longest.find('.');
    const std::string own = dot == std::string::npos ? std::string() : longest.substr(0, dot + 1);
    const std::string rest = longest.substr(own.size());
    std::vector<PartSpelling> all = {{own, own, std::string(kFilledHead)}};
    if (rest.empty()) return all;
    for (const auto& [name, entry] : stored_) {
      if (!name.ends_with(rest) || name == longest) continue;
      const std::string model(name.substr(0, name.size() - rest.size()));
      if (model.empty() || model.back() == '.') all.push_back({own, model, head_of(model)});
    }
    std::sort(all.begin() + 1, all.end(),
              [](const auto& x, const auto& y) { return x.model < y.model; });
    return all;
  }

  // "language_model.lm_head." for "language_model.model.", as long as there is one.
  std::string head_of(std::string outer) const {
    while (true) {
      std::string head = outer + std::string(kFilledHead);
      if (outer.empty() || stored_.contains(head + "weight")) return head;
      outer.pop_back();
      const size_t dot = outer.rfind('.');
      outer.resize(dot == std::string::npos ? 0 : dot + 1);
    }
  }

  // Names that the original lacks or has with other shapes.
  std::vector<std::string> misfits(const PartSpelling& spelling) const {
    std::vector<std::string> names = missing_names(spelling);
    for (const ExportedTensor& tensor : tensors_.tensors) {
      const auto stored = stored_.find(spelled(tensor.entry.name, spelling));
      if (stored == stored_.end() || stored->second->shape == tensor.entry.shape) continue;
      names.push_back(stored->second->name);
    }
    return names;
  }

  [[noreturn]] void refuse_twice(const PartSpelling& one, const PartSpelling& other) const {
    fail(ErrorKind::invalid,
         "{}: the checkpoint's tensors fit two of its parts, '{}*' and '{}*'; rename them to those "
         "of one ({})",
         original_.path, one.model, other.model,
         option("renames", fmt::format("{}*={}*", one.own, other.model)));
  }

  ShapeOf shapes() const {
    return [this](const std::string& name) {
      const auto found = stored_.find(name);
      return found == stored_.end() ? nullptr : &found->second->shape;
    };
  }

  std::vector<std::string> missing_names(const PartSpelling& spelling) const {
    std::vector<std::string> missing;
    for (const ExportedTensor& tensor : tensors_.tensors) {
      std::string name = spelled(tensor.entry.name, spelling);
      if (!is_held(name, tensor.entry.shape, shapes())) missing.push_back(std::move(name));
    }
    return missing;
  }

  void append_original() {
    if (original_.catalog->locator) {
      fail(ErrorKind::unsupported,
           "{}: holds pickles (pytorch_model*.bin), from which nothing is filled up; make it "
           "safetensors first (convert it with {})",
           original_.path, option("to", "hugging_face"));
    }
    const auto& reader_locks = original_.catalog->reader_locks;
    merged_.reader_locks.insert(merged_.reader_locks.end(), reader_locks.begin(),
                                reader_locks.end());
    std::vector<uint32_t> numbers;
    for (const FileInfo& file : original_.catalog->files) {
      numbers.push_back(merged_.add_file(file.path, file.bytes));
    }
    for (Entry entry : original_.catalog->entries) {
      std::shared_ptr<Quantised> parts;
      if (entry.quantised) parts = std::make_shared<Quantised>(*entry.quantised);
      entry.quantised = parts;
      const auto renumber = [&](Entry& part) {
        for (Chunk& chunk : part.chunks) chunk.extent.file = numbers.at(chunk.extent.file);
      };
      renumber(entry);
      if (parts) for_each_part(*parts, renumber);
      merged_.entries.push_back(std::move(entry));
    }
  }

  // "12 tensors that the checkpoint lacks are those of DIR: model.visual (10), model.mtp (2)"
  std::string what_was_added(const std::vector<ExportedTensor>& added) const {
    if (added.empty()) {
      return fmt::format("the checkpoint lacks no tensor of {}", original_.path);
    }
    std::map<std::string, int64_t> parts;
    for (const ExportedTensor& tensor : added) {
      const std::string& name = tensor.entry.name;
      size_t end = name.find('.');
      if (end != std::string::npos) end = name.find('.', end + 1);
      ++parts[name.substr(0, end)];
    }
    std::vector<std::string> texts;
    for (const auto& [part, count] : parts) texts.push_back(fmt::format("{} ({})", part, count));
    return fmt::format("{} tensors that the checkpoint lacks are those of {}: {}", added.size(),
                       original_.path, some_of(texts));
  }

  const Checkpoint& original_;
  ExportedTensors& tensors_;
  Catalog merged_;
  std::unordered_map<std::string_view, const Entry*> stored_;
  uint32_t first_ = 0;  // of the original's entries, in the catalog of both
};

}  // namespace

Catalog fill_tensors(const Checkpoint& original, const Catalog& source, std::optional<DType> dtype,
                     ExportedTensors& tensors, std::vector<std::string>& warnings) {
  Filler filler(original, source, tensors);
  filler.spell();
  filler.check_shapes();
  std::vector<std::string> unsaid;  // of tensors that are not taken
  return filler.fill(stored_tensors(original.catalog, dtype, unsaid), warnings);
}

}  // namespace ferry
