#include "text/bpe/byte_pair_encoder.h"

namespace ferry {

void BytePairEncoder::merge(std::string_view piece, State& state, std::vector<int32_t>& ids) const {
  if (pairs_.whole != nullptr) {
    if (const int32_t id = pairs_.whole->find(piece); id != Vocabulary::kNone) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<int32_t>& symbols = state.symbols;
  symbols.clear();
  bool after_unknown = false;
  for (const char byte : piece) {
    const int32_t symbol = pairs_.byte_symbols[static_cast<unsigned char>(byte)];
    if (symbol >= 0) {
      symbols.push_back(symbol);
    } else if (pairs_.unknown && !(pairs_.fuse_unknown && after_unknown)) {
      symbols.push_back(*pairs_.unknown);
    }
    after_unknown = symbol < 0;
  }
  state.merger.merge(pairs_.merges, pairs_.one_pair, symbols);
  if (pairs_.ids.empty()) {
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  } else {
    for (const int32_t symbol : symbols) ids.push_back(pairs_.ids[static_cast<size_t>(symbol)]);
  }
}

}  // namespace ferry
