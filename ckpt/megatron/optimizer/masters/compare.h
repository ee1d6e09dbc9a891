// Whether the optimizer's fp32 copies of parameters belong to the model's weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/engine.h"
#include "ckpt/summary.h"

namespace ferry {

/// A weight of 16 or 32 bits, and the fp32 master that it is rounded from.
struct MasterPair {
  std::string tensor;  // the weight's name
  Dims shape;
  DType weight_dtype = DType::bf16;
  Recipe master, weight;  // both of that shape
};

/// The pairs of every tensor of the model with an fp32 master weight. Those stored as remainders of
/// the weights are left out: any remainder fits any weight.
std::vector<MasterPair> master_pairs(const Catalog& catalog);

/// "decoder.x: 12 of 4,096 elements ...", for messages.
std::string to_string(const MasterMismatch& mismatch);

enum class CompareUntil { end, first_mismatch };

/// The pairs whose weights are not their masters rounded to nearest, in order. An element halfway
/// between two bf16 numbers may have become either: the rules of optimizers differ there. Reads
/// masters and weights once, in at most `options.memory_bytes`; progress counts bytes of masters.
std::vector<MasterMismatch> compare_masters(const Catalog& catalog,
                                            const std::vector<MasterPair>& pairs,
                                            const EngineOptions& options,
                                            CompareUntil until = CompareUntil::end);

}  // namespace ferry
