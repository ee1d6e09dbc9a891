#include "convert/check/embedding.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace ferry {
namespace {

constexpr std::string_view kEmbeddingNames[] = {"embed_tokens.weight",    "wte.weight",
                                                "word_embeddings.weight", "embed_in.weight",
                                                "tok_embeddings.weight",  "embeddings.weight"};

// A module that is a number: of a layer, a codebook, an expert.
bool is_numbered(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) return true;
    begin = end + 1;
  }
  return false;
}

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
