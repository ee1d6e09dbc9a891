// Routed experts: each token is sent to a few of them, on whichever rank, and back.
//
// Source: megatron/core/transformer/moe/{token_dispatcher,experts}.py (the all-to-all dispatcher,
// without dropped tokens).
#pragma once

#include <string>
#include <vector>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/float8/float8_linear.h"
#include "trainer/model/mlp.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

// The linear layers of routed experts.

/// y = x · Wᵀ + b for the rows of each of a rank's experts, each with its own weight and bias.
class ExpertLinear {
 public:
  ExpertLinear() = default;
  /// `names` of the experts' modules, without ".weight", and of all together. Has biases if the
  /// parameters do.
  ExpertLinear(const ParameterSet& parameters, const std::vector<std::string>& names,
               const std::string& together, int64_t in, int64_t out);

  /// Rows of expert e are [offsets[e], offsets[e + 1]) of `count`.
  struct Rows {
    int64_t count = 0;
    int64_t most = 0;  // the greatest `count` that there may be
    const int64_t* offsets = nullptr;
    const float* bias_scale = nullptr;  // a factor of each row's bias; null: 1
  };
  /// What is multiplied: in the model's type, in FP8 if the layer computes in it, or both.
  struct Factor {
    kernels::ConstArray values;
    Float8Rows codes;
  };
  void forward(Pass& pass, const Rows& rows, const Factor& x, kernels::Array y) const;
  /// Adds to the weights' gradients and sets dx.
  void backward(Pass& pass, const Rows& rows, const Factor& x, const Factor& dy,
                kernels::Array dx) const;
  /// Adds to the biases' gradients, if there are biases, and to those of their factors, [rows].
  void bias_backward(Pass& pass, const Rows& rows, kernels::ConstArray dy,
                     float* dbias_scale) const;

  const Float8Linear* float8() const { return float8_; }  // null: computes in the model's type
  /// Whether backward() takes inputs in the model's type, and it or bias_backward() gradients.
  bool takes_values() const { return float8_ == nullptr || !float8_->can_keep(); }
  bool takes_gradient_values() const { return takes_values() || !biases_.values.empty(); }

 private:
  /// A parameter of each expert.
  struct Each {
    std::vector<kernels::ConstArray> values;
    std::vector<Parameter> parameters;
    std::vector<kernels::Array> gradients;

    void add(const Parameter& parameter);
    /// The gradients of a layer's experts become valid together, also of experts without rows.
    bool take_gradients() const;
  };
  Each weights_, biases_;
  Float8Linear* float8_ = nullptr;
  int64_t in_ = 0, out_ = 0;
};

/// How experts are distributed over the ranks of ModelRanks::experts.
struct ExpertSplit {
  int64_t ranks = 1, rank = 0;  // ranks with different experts
  int64_t parts = 1;            // ranks that share an expert
};

class Experts {
 public:
  /// A parcel is a token at a rank that has experts of it, sent there once whatever their number; a
  /// row is a token at one of these experts. Alone, a rank's own tokens are its parcels.
  struct Saved {
    int32_t* token_of = nullptr;          // by parcel sent, sorted by rank: token · ranks + rank
    int32_t* parcel_of = nullptr;         // the inverse, [own rows, ranks]; -1: not sent there
    std::vector<int64_t> sent, received;  // parcels to and from each rank
    int64_t parcels = 0, rows = 0;        // received
    int64_t* offsets = nullptr;           // of rows by this rank's experts
    int32_t* choice_of = nullptr;         // by row, sorted by expert (routing.h)
    int32_t* row_of = nullptr;            // [parcels, chosen]
    float* weights = nullptr;             // of each row's output
    ExpertLinear::Factor input, active;   // what is kept of them
    kernels::Array up;
  };

  Experts() = default;
  /// `prefix` is "decoder.layers.<layer>.mlp.experts.experts".
  Experts(const ParameterSet& parameters, const std::string& prefix,
          const Architecture& architecture, const ExpertSplit& split);

  /// Sets y [own rows, hidden] to the weighted sum of the chosen experts' outputs. `taken` and
  /// `weights` are [own rows, chosen].
  Saved forward(Pass& pass, const int32_t* taken, const float* weights, kernels::ConstArray x,
                kernels::Array y) const;
  /// Sets dx and dweights [own rows, chosen].
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray dy, kernels::Array dx,
                float* dweights) const;

 private:
  static int64_t ranks(const Pass& pass) { return pass.ranks.experts.size(); }
  static bool is_alone(const Pass& pass) { return ranks(pass) == 1; }
  int64_t most_sent(const Pass& pass) const;
  static int64_t most_received(const Pass& pass) { return pass.own_rows() * ranks(pass); }
  int64_t most_rows(const Pass& pass) const;
  void order(Pass& pass, const int32_t* taken, Saved& saved) const;
  void order_parcels(Pass& pass, const int32_t* taken, Saved& saved) const;
  kernels::ConstArray dispatch(Pass& pass, const Saved& saved, kernels::ConstArray own,
                               int64_t width) const;
  void collect(Pass& pass, const Saved& saved, kernels::ConstArray parcels, kernels::Array own,
               int64_t width) const;
  /// Rows of what tokens have: in `rows` if not null, and in FP8, in pass.scratch, if `linear`,
  /// whose `tensor` they are, computes in it; then those of tokens are in `arena`.
  ExpertLinear::Factor to_experts(Pass& pass, const Saved& saved, kernels::ConstArray own,
                                  kernels::Array rows, const Float8Linear* linear,
                                  Float8Tensor tensor, Arena& arena) const;
  void from_experts(Pass& pass, const Saved& saved, kernels::ConstArray rows,
                    kernels::Array own) const;
  void weights_to_experts(Pass& pass, const Saved& saved, const float* own) const;
  void weights_from_experts(Pass& pass, const Saved& saved, const float* rows, float* own) const;

  /// In `arena`, as ExpertLinear takes it.
  ExpertLinear::Factor activated(Pass& pass, const Saved& saved, Arena& arena) const;

  ExpertLinear input_, output_;
  kernels::Activation activation_ = kernels::Activation::swiglu;
  kernels::GluSettings glu_;
  ExpertSplit split_;
  int64_t hidden_ = 0, width_ = 0, up_width_ = 0;
  int64_t experts_ = 0, own_experts_ = 0, chosen_ = 0;
};

}  // namespace ferry
