#include "convert/config/activation_names.h"

#include <algorithm>
#include <iterator>

namespace ferry {
namespace {

// The first of several names for the same is written.
struct ActivationName {
  std::string_view name;
  Activation activation;
};
constexpr ActivationName kActivationNames[] = {
    {"silu", Activation::swiglu},         {"swish", Activation::swiglu},
    {"xielu", Activation::xielu},         {"relu2", Activation::squared_relu},
    {"gelu_new", Activation::gelu_tanh},  {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh}, {"quick_gelu", Activation::quick_geglu},
    {"gelu", Activation::gelu},           {"gelu_pytorch_tanh", Activation::tanh_geglu},
    {"gelu", Activation::other},
};

}  // namespace

Activation activation_of(std::string_view name) {
  const auto* found = std::ranges::find(kActivationNames, name, &ActivationName::name);
  return found != std::end(kActivationNames) ? found->activation : Activation::other;
}

std::string_view name_of(Activation activation) {
  return std::ranges::find(kActivationNames, activation, &ActivationName::activation)->name;
}

std::string_view in_words(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
      return "SwiGLU";
    case Activation::gelu:
      return "GELU";
    case Activation::gelu_tanh:
      return "GELU (tanh form)";
    case Activation::squared_relu:
      return "squared ReLU";
    case Activation::quick_geglu:
      return "quick GEGLU";
    case Activation::tanh_geglu:
      return "GEGLU (tanh form)";
    case Activation::xielu:
      return "xIELU";
    case Activation::other:
      break;
  }
  return "unknown";
}

}  // namespace ferry
