#include "convert/check/embedding.h"

#include <string>
#include <string_view>

#include "convert/model/numbered_name.h"

namespace ferry {
namespace {

constexpr std::string_view kEmbeddingNames[] = {
    "embed_tokens.weight",   "wte.weight",    "word_embeddings.weight", "embed_in.weight",
    "tok_embeddings.weight", "shared.weight", "embeddings.weight"};

}  // namespace

const Entry* embedding_of(const Catalog& catalog) {
  for (const std::string_view end : kEmbeddingNames) {
    for (const Entry& entry : catalog.entries) {
      const bool is_one =
          entry.name == end ||
          (entry.name.ends_with(end) && entry.name[entry.name.size() - end.size() - 1] == '.');
      if (is_one && entry.shape.size() == 2 && !is_numbered(entry.name)) return &entry;
    }
  }
  return nullptr;
}

}  // namespace ferry
