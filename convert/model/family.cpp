#include "convert/model/family.h"

#include <algorithm>
#include <string>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr std::string_view kDecoderLayer = "decoder.layers.{layer}.";
constexpr std::string_view kMtpLayer = "mtp.layers.{mtp}.transformer_layer.";

bool mentions(std::string_view pattern, std::string_view what) {
  return pattern.find(what) != std::string_view::npos;
}

// Of the rule, not of one name: a constant has no Megatron name, a vocabulary copy no layer there.
bool mentions(const Rule& rule, std::string_view what) {
  return mentions(rule.megatron, what) ||
         std::any_of(rule.hugging_face.begin(), rule.hugging_face.end(),
                     [&](std::string_view name) { return mentions(name, what); });
}

void replace(std::string& text, std::string_view what, int64_t number) {
  for (size_t at; (at = text.find(what)) != std::string::npos;) {
    text.replace(at, what.size(), std::to_string(number));
  }
}

struct Indices {
  int64_t layer = 0;
  int64_t expert = 0;
  int64_t mtp = -1;  // number of the prediction layer, when the layer is one
};

std::string fill(std::string_view pattern, const Indices& at) {
  std::string name(pattern);
  if (at.mtp >= 0 && name.starts_with(kDecoderLayer)) {
    name.replace(0, kDecoderLayer.size(), kMtpLayer);
  }
  replace(name, "{layer}", at.layer);
  replace(name, "{expert}", at.expert);
  replace(name, "{mtp}", at.mtp);
  return name;
}

class Expansion {
 public:
  Expansion(const Family& family, const Architecture& architecture)
      : rules_(family.rules), a_(architecture) {}

  std::vector<Link> run() {
    for (size_t begin = 0; begin < rules_.size();) {
      const size_t end = run_end(begin, rules_.size(), "{layer}");
      if (mentions(rules_[begin], "{layer}")) {
        all_layers(begin, end);
      } else {
        for (size_t i = begin; i < end; ++i) add(rules_[i], {});
      }
      begin = end;
    }
    return std::move(links_);
  }

 private:
  // End of the run of rules that agree with the first one about mentioning `what`.
  size_t run_end(size_t begin, size_t limit, std::string_view what) const {
    const bool mentioned = mentions(rules_[begin], what);
    size_t end = begin;
    while (end < limit && mentions(rules_[end], what) == mentioned) ++end;
    return end;
  }

  void all_layers(size_t begin, size_t end) {
    for (int64_t layer = 0; layer < a_.layers + a_.mtp_layers; ++layer) {
      const Indices at{layer, 0, layer < a_.layers ? -1 : layer - a_.layers};
      for (size_t i = begin; i < end;) {
        const size_t stop = run_end(i, end, "{expert}");
        const int64_t times = mentions(rules_[i], "{expert}") ? a_.experts : 1;
        for (int64_t expert = 0; expert < times; ++expert) {
          for (size_t r = i; r < stop; ++r) add(rules_[r], {at.layer, expert, at.mtp});
        }
        i = stop;
      }
    }
  }

  void add(const Rule& rule, const Indices& at) {
    const bool for_mtp_only = mentions(rule, "{mtp}") || rule.copies;
    if (for_mtp_only && at.mtp < 0) return;
    if (rule.when != nullptr && !rule.when(a_, at.layer)) return;
    Link link;
    link.rule = &rule;
    link.megatron = fill(rule.megatron, at);
    for (std::string_view name : rule.hugging_face) link.hugging_face.push_back(fill(name, at));
    for (Size size : rule.shape) link.shape.push_back(size_of(size, a_));
    links_.push_back(std::move(link));
  }

  const std::vector<Rule>& rules_;
  const Architecture& a_;
  std::vector<Link> links_;
};

}  // namespace

bool Architecture::all_moe() const {
  return experts > 0 && std::find(moe_layers.begin(), moe_layers.end(), false) == moe_layers.end();
}

int64_t size_of(Size size, const Architecture& a) {
  const auto times = [](int64_t x, int64_t y) { return checked_multiply(x, y, "size of a layer"); };
  const auto plus = [](int64_t x, int64_t y) { return checked_add(x, y, "size of a layer"); };
  const int64_t halves = a.gated() ? 2 : 1;
  switch (size) {
    case Size::one:
      return 1;
    case Size::hidden:
      return a.hidden;
    case Size::twice_hidden:
      return times(2, a.hidden);
    case Size::padded_vocab:
      return a.padded_vocab;
    case Size::positions:
      return a.positions;
    case Size::qkv:
      return times(plus(a.heads, times(2, a.groups)), a.head_dim);
    case Size::attention:
      return times(a.heads, a.mla ? a.v_dim : a.head_dim);
    case Size::head:
      return a.head_dim;
    case Size::fc1:
      return times(halves, a.ffn);
    case Size::ffn:
      return a.ffn;
    case Size::experts:
      return a.experts;
    case Size::expert_fc1:
      return times(halves, a.expert_ffn);
    case Size::expert_ffn:
      return a.expert_ffn;
    case Size::shared_fc1:
      return times(halves, a.shared_ffn);
    case Size::shared_ffn:
      return a.shared_ffn;
    case Size::q_lora:
      return a.q_lora_rank;
    case Size::q_up:
      return times(a.heads, plus(a.qk_nope_dim, a.qk_rope_dim));
    case Size::kv_lora:
      return a.kv_lora_rank;
    case Size::kv_down:
      return plus(a.kv_lora_rank, a.qk_rope_dim);
    case Size::kv_up:
      return times(a.heads, plus(a.qk_nope_dim, a.v_dim));
  }
  fail(ErrorKind::internal, "unknown size");
}

std::vector<Link> expand(const Family& family, const Architecture& architecture) {
  return Expansion(family, architecture).run();
}

const Family* find_family(std::string_view name) {
  for (const Family& family : families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

}  // namespace ferry
