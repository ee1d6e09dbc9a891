#include "convert/check/original_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "convert/carried_files.h"
#include "convert/check/embedding.h"
#include "convert/config_value.h"
#include "convert/model/mismatch.h"
#include "convert/model/quantised_values.h"
#include "convert/rewrite/expert_forms.h"
#include "convert/tokenizer.h"

namespace ferry {
namespace {

using nlohmann::json;

// Members of config.json that a training, a quantisation or a release of transformers changes and
// that leave alone what the model computes.
constexpr std::string_view kFree[] = {"_name_or_path",
                                      "architectures",
                                      "bos_token_id",
                                      "compression_config",
                                      "dtype",
                                      "eos_token_id",
                                      "pad_token_id",
                                      "quantization_config",
                                      "torch_dtype",
                                      "transformers_version",
                                      "use_cache",
                                      "auto_map",
                                      "tie_word_embeddings"};

// Quantised weights as their values, where those can be made.
SharedCatalog values_or_stored(const Checkpoint& checkpoint) {
  try {
    return values_of(checkpoint).catalog;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    return checkpoint.catalog;
  }
}

class OriginalComparison {
 public:
  OriginalComparison(const Checkpoint& checkpoint, const Checkpoint& original, Findings& findings)
      : checkpoint_(checkpoint),
        original_(original),
        own_(values_or_stored(checkpoint)),
        others_(values_or_stored(original)),
        findings_(findings) {
    for (const Entry& entry : own_->entries) own_shapes_.emplace(entry.name, &entry.shape);
    for (const Entry& entry : others_->entries) other_shapes_.emplace(entry.name, &entry.shape);
  }

  void run() {
    compare_tensors();
    compare_configs();
    compare_files();
  }

 private:
  using Shapes = std::unordered_map<std::string_view, const Dims*>;

  static ShapeOf look_up(const Shapes& shapes) {
    return [&shapes](const std::string& name) {
      const auto found = shapes.find(name);
      return found == shapes.end() ? nullptr : found->second;
    };
  }

  void compare_tensors() {
    std::vector<std::string> missing, other_form, left_over;
    for (const Entry& entry : others_->entries) {
      const auto own = own_shapes_.find(entry.name);
      if (own == own_shapes_.end()) {
        const bool is_held = ferry::is_held(entry.name, entry.shape, look_up(own_shapes_));
        (is_held ? other_form : missing).push_back(entry.name);
      } else if (*own->second != entry.shape) {
        findings_.problem("shape", entry.name,
                          fmt::format("{}: has shape {}, in the original {}", entry.name,
                                      to_string(*own->second), to_string(entry.shape)),
                          "write the model anew with the sizes of the original");
      }
    }
    const Entry* embedding = embedding_of(others_);
    for (const Entry& entry : own_->entries) {
      if (other_shapes_.contains(entry.name)) continue;
      // Further names of a tied embedding, which torch.save keeps.
      if (embedding != nullptr && entry.shape == embedding->shape && is_tied()) continue;
      if (!is_held(entry.name, entry.shape, look_up(other_shapes_)))
        left_over.push_back(entry.name);
    }
    for (const NameGroup& group : grouped(missing, left_over)) {
      findings_.problem("missing", group.pattern,
                        fmt::format("{}: is in the original and not here{}", group.line,
                                    group.near.empty() ? "" : ", where " + group.near + " is"),
                        fmt::format("take it from the original (convert with {})",
                                    option("fill_from", "ORIGINAL")));
    }
    for (const NameGroup& group : grouped(left_over, {})) {
      findings_.problem("left_over", group.pattern,
                        fmt::format("{}: is not in the original", group.line),
                        "leave it out, or compare with the model that it is of");
    }
    if (other_form.empty()) return;
    findings_.warning("names", other_form.front(),
                      fmt::format("{} tensors of the original are here under other names or in "
                                  "other pieces: {}",
                                  other_form.size(), some_of(other_form, 3)),
                      fmt::format("give them the names of the original (convert with {})",
                                  option("fill_from", "ORIGINAL")));
  }

  bool is_tied() const {
    const auto config =
        read_hugging_face_config(*checkpoint_.catalog->file_system, checkpoint_.path);
    return config && boolean_of(*config, "tie_word_embeddings", false);
  }

  void compare_configs() {
    const auto own = read_hugging_face_config(*checkpoint_.catalog->file_system, checkpoint_.path);
    const auto other = read_hugging_face_config(*original_.catalog->file_system, original_.path);
    if (own && other) compare_members(*own, *other, "");
  }

  void compare_members(const json& own, const json& other, const std::string& before) {
    for (const auto& [key, value] : other.items()) {
      if (has_name(kFree, key) || value.is_null()) continue;
      // Which of no windows would be left out.
      if (key == "max_window_layers" && !boolean_of(own, "use_sliding_window", false)) continue;
      const auto member = own.find(key);
      const std::string name = before + key;
      if (member == own.end() || member->is_null()) continue;  // another release's default
      if (value.is_object() && member->is_object()) {
        compare_members(*member, value, name + ".");
      } else if (*member != value) {
        findings_.warning("config", name,
                          fmt::format("config.json's {} is {}, in the original {}", name,
                                      shown(*member), shown(value)),
                          "take the original's where the model was not changed so");
      }
    }
  }

  void compare_files() {
    const auto files_of = [](const Checkpoint& model) {
      return carried_files(*model.catalog->file_system, model.path, true).files;
    };
    const std::vector<CopiedFile> own = files_of(checkpoint_);
    std::vector<std::string> missing;
    for (const CopiedFile& file : files_of(original_)) {
      const bool matters = is_tokenizer_file(file.name) || file.name.ends_with("_config.json") ||
                           file.name.ends_with(".py");
      const bool is_there =
          std::ranges::any_of(own, [&](const CopiedFile& each) { return each.name == file.name; });
      if (matters && !is_there) missing.push_back(file.name);
    }
    if (missing.empty()) return;
    findings_.warning("files", missing.front(),
                      fmt::format("{} file{} of the original {} missing: {}", missing.size(),
                                  missing.size() == 1 ? "" : "s",
                                  missing.size() == 1 ? "is" : "are", some_of(missing)),
                      "copy what the model still needs");
  }

  const Checkpoint &checkpoint_, &original_;
  SharedCatalog own_, others_;
  Findings& findings_;
  Shapes own_shapes_, other_shapes_;
};

}  // namespace

void check_against_original(const Checkpoint& checkpoint, const Checkpoint& original,
                            Findings& findings) {
  OriginalComparison(checkpoint, original, findings).run();
}

}  // namespace ferry
