#include "convert/model/model_tensors.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>
#include <utility>

#include "ckpt/megatron/model/parameter_names.h"
#include "convert/model/stacking.h"

namespace ferry {
namespace {

class TensorLister {
 public:
  TensorLister(const Architecture& a, DType dtype) : a_(a), dtype_(dtype) {}

  std::vector<ModelTensor> all() {
    add_rows("", nullptr, embedding_parameters(), 0);
    for (int64_t layer = 0; layer < a_.layers; ++layer) {
      add_layer(fmt::format("decoder.layers.{}.", layer), layer);
    }
    for (int64_t mtp = 0; mtp < a_.mtp_layers; ++mtp) {
      const std::string prefix = fmt::format("mtp.layers.{}.", mtp);
      const int64_t layer = a_.layers + mtp * a_.mtp_inner_layers;
      add_rows(prefix, nullptr, mtp_input_parameters(), layer);
      for (int64_t inner = 0; inner < a_.mtp_inner_layers; ++inner) {
        const std::string number = a_.is_hybrid() ? fmt::format("layers.{}.", inner) : "";
        add_layer(prefix + "transformer_layer." + number, layer + inner);
      }
      add_rows(prefix, nullptr, mtp_output_parameters(), layer);
    }
    add_rows("", nullptr, head_parameters(), 0);
    add_rows("", nullptr, layer_embedding_parameters(), 0);
    return std::move(tensors_);
  }

 private:
  void add_layer(const std::string& prefix, int64_t layer) {
    for (const Block& block : layer_blocks()) add_rows(prefix, &block, block.parameters, layer);
  }

  void add_rows(const std::string& prefix, const Block* block, std::span<const ParameterRow> rows,
                int64_t layer) {
    for (const ParameterRow& row : rows) {
      if (!has_parameter(block, row, a_, layer)) continue;
      std::string name = prefix + std::string(row.name);
      if (row.routed) name.insert(prefix.size() + kRoutedExperts.size(), "0.");
      const Dims extents = row.extents(a_.differs_by_layer() ? a_.in_layer(layer) : a_);
      if (row.pieces.empty()) add(row, extents, stack_place(name, a_));
      for (const RowPiece& piece : row.pieces) {
        Dims of_piece = extents;
        of_piece[0] = piece.rows(a_);
        add(row, of_piece, stack_place(name + std::string(piece.suffix), a_));
      }
    }
  }

  void add(const ParameterRow& row, const Dims& extents, StackPlace place) {
    if (!known_.insert(place.name).second) return;
    ModelTensor tensor{std::move(place.name), std::move(place.extents),
                       row.buffer && !row.of_model_dtype ? DType::f32 : dtype_};
    tensor.shape.insert(tensor.shape.end(), extents.begin(), extents.end());
    tensors_.push_back(std::move(tensor));
  }

  const Architecture& a_;
  DType dtype_;
  std::vector<ModelTensor> tensors_;
  std::unordered_set<std::string> known_;  // stacked layers are one tensor
};

}  // namespace

std::vector<ModelTensor> model_tensors(const Architecture& a, DType dtype) {
  return TensorLister(a, dtype).all();
}

}  // namespace ferry
