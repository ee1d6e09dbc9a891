// The ways in which Megatron and Hugging Face hold the same elements, as moves.
//
// Each transform is between one canonical Megatron tensor (of one layer, of one expert) and one or
// more Hugging Face tensors. Moves lead from Megatron to Hugging Face; Move::inverse leads back, so
// that one description serves both directions.
#pragma once

#include <vector>

#include "ckpt/core/recipe.h"
#include "convert/model/family.h"

namespace ferry {

/// One Hugging Face tensor of a link: its shape and the moves (input 0: the canonical Megatron
/// tensor) that write all of it.
struct Part {
  Dims shape;
  std::vector<Move> moves;
};

/// The parts of a link, in the order of its Hugging Face names. Of a tensor that holds all experts
/// the moves write this link's expert alone, and the shape is the whole tensor's. mismatch when the
/// canonical shape does not divide as the transform needs, naming the tensor.
std::vector<Part> parts_of(const Link& link, const Architecture& architecture);

/// Whether a link's name at this place stands at an earlier one, too.
bool is_repeated(const Link& link, size_t part);

/// What of the canonical tensor no part is made of, which is zero in Megatron: of `queries` and
/// `unused`.
std::vector<Box> left_at_zero(const Link& link, const Architecture& architecture);

/// Whether a link is to matrices of all experts that are transposed in the tensor, which some
/// programs write as they are in Megatron: transformers' classes while they run.
bool has_transposed_experts(const Link& link);

/// The same part of such a tensor with its matrices the other way round.
Part with_matrices_exchanged(Part part);

}  // namespace ferry
