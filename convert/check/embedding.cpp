#include "convert/check/embedding.h"

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "convert/config_value.h"
#include "convert/model/family.h"
#include "convert/model/numbered_name.h"

namespace ferry {
namespace {

constexpr std::string_view kEmbeddingNames[] = {
    "embed_tokens.weight",   "wte.weight",    "word_embeddings.weight", "embed_in.weight",
    "tok_embeddings.weight", "shared.weight", "embeddings.weight",      "word_embedding.weight",
    "tokens_embed.weight"};

}  // namespace

const Entry* embedding_of(std::span<const Entry* const> entries) {
  for (const std::string_view end : kEmbeddingNames) {
    for (const Entry* entry : entries) {
      const std::string& name = entry->name;
      const bool is_one =
          name == end || (name.ends_with(end) && name[name.size() - end.size() - 1] == '.');
      if (is_one && entry->shape.size() == 2 && !is_numbered(name)) return entry;
    }
  }
  return nullptr;
}

const Entry* embedding_of(const Catalog& catalog) {
  std::vector<const Entry*> entries;
  for (const Entry& entry : catalog.entries) entries.push_back(&entry);
  return embedding_of(entries);
}

OutputLayer output_layer_of(const nlohmann::json& config, const KnownModel* known) {
  if (known != nullptr) return {known->family->output_layer_name(), known->architecture.tied};
  return {std::string(kOutputLayerName), boolean_of(config, "tie_word_embeddings", false)};
}

const Entry* second_name_of_embedding(const Catalog& catalog, const std::string& name) {
  const Entry* found = catalog.find(name);
  const Entry* embedding = embedding_of(catalog);
  if (found == nullptr || embedding == nullptr || found == embedding) return nullptr;
  if (found->chunks.size() != 1 || embedding->chunks.size() != 1) return nullptr;
  const Extent &a = found->chunks[0].extent, &b = embedding->chunks[0].extent;
  const bool is_one = a.file == b.file && a.offset == b.offset &&
                      a.payload_offset == b.payload_offset && found->shape == embedding->shape &&
                      found->dtype == embedding->dtype;
  return is_one ? found : nullptr;
}

}  // namespace ferry
