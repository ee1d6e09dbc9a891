// Runs one operation on arrays of files, for tests/interop/trainer/check_kernels.py.
//
//   run_operation OPERATION FOLDER NAME=NUMBER...
//
// An input `x` is FOLDER/x: elements of the type (type=0: fp32, 1: bf16) or of int32. Outputs are
// written to the same folder.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "kernels/kernels.h"

using namespace ferry::kernels;

namespace {

class Call {
 public:
  Call(int count, char** words) : folder_(words[2]) {
    for (int i = 3; i < count; ++i) {
      const std::string word = words[i];
      const auto equal = word.find('=');
      numbers_[word.substr(0, equal)] = std::atof(word.c_str() + equal + 1);
    }
  }

  double real(const std::string& name) const { return numbers_.at(name); }
  int64_t number(const std::string& name) const { return static_cast<int64_t>(real(name)); }
  Type type() const { return number("type") == 1 ? Type::bf16 : Type::f32; }

  template <typename T = void>
  T* input(const std::string& name) {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    auto& bytes = arrays_[name];
    bytes.assign(std::istreambuf_iterator<char>(file), {});
    return reinterpret_cast<T*>(bytes.data());
  }
  ConstArray in(const std::string& name) { return {input(name), type()}; }
  Array out(const std::string& name, int64_t count, Type kind) {
    auto& bytes = arrays_[name];
    bytes.assign(static_cast<size_t>(count * size_bytes(kind)), 0);
    outputs_.push_back(name);
    return {bytes.data(), kind};
  }
  Array out(const std::string& name, int64_t count) { return out(name, count, type()); }
  float* floats(const std::string& name, int64_t count) {
    return static_cast<float*>(out(name, count, Type::f32).data);
  }
  /// An fp32 array that the operation changes.
  float* state(const std::string& name) {
    outputs_.push_back(name);
    return input<float>(name);
  }
  void write() const {
    for (const auto& name : outputs_) {
      const auto& bytes = arrays_.at(name);
      std::ofstream(folder_ + "/" + name, std::ios::binary)
          .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }

 private:
  std::string folder_;
  std::map<std::string, double> numbers_;
  std::map<std::string, std::vector<char>> arrays_;
  std::vector<std::string> outputs_;
};

void matmul(Kernels& kernels, Call& call) {
  const int64_t m = call.number("m"), n = call.number("n"), k = call.number("k");
  const auto x = call.in("x"), w = call.in("w"), dy = call.in("dy");
  kernels.run(Matmul{.m = m,
                     .n = n,
                     .k = k,
                     .a = x,
                     .b = w,
                     .c = call.out("y", m * n),
                     .b_transposed = true,
                     .bias = call.in("bias")});
  kernels.run(Matmul{.m = m, .n = k, .k = n, .a = dy, .b = w, .c = call.out("dx", m * k)});
  kernels.run(Matmul{.m = n,
                     .n = k,
                     .k = m,
                     .a = dy,
                     .b = x,
                     .c = call.out("dw", n * k, Type::f32),
                     .a_transposed = true,
                     .accumulate = true});
  kernels.run(SumRows{.rows = m, .width = n, .x = dy, .sum = call.out("dbias", n, Type::f32)});
}

void norm(Kernels& kernels, Call& call) {
  const int64_t rows = call.number("rows"), width = call.number("width");
  const bool rms = call.number("rms") != 0;
  const auto x = call.in("x"), weight = call.in("weight");
  float *mean = call.floats("mean", rows), *inverse = call.floats("inverse", rows);
  kernels.run(NormForward{.rows = rows,
                          .width = width,
                          .epsilon = call.real("epsilon"),
                          .rms = rms,
                          .x = x,
                          .weight = weight,
                          .bias = rms ? ConstArray() : call.in("bias"),
                          .y = call.out("y", rows * width),
                          .mean = mean,
                          .inverse = inverse});
  kernels.run(NormBackward{.rows = rows,
                           .width = width,
                           .rms = rms,
                           .x = x,
                           .weight = weight,
                           .mean = mean,
                           .inverse = inverse,
                           .dy = call.in("dy"),
                           .dx = call.out("dx", rows * width),
                           .dweight = call.out("dweight", width, Type::f32),
                           .dbias = rms ? Array() : call.out("dbias", width, Type::f32)});
}

void activation(Kernels& kernels, Call& call) {
  const int64_t rows = call.number("rows"), width = call.number("width");
  const auto kind = static_cast<Activation>(call.number("kind"));
  const int64_t wide = is_gated(kind) ? 2 * width : width;
  const auto x = call.in("x"), p = call.in("alpha_p"), n = call.in("alpha_n");
  kernels.run(ActivationForward{.kind = kind,
                                .rows = rows,
                                .width = width,
                                .x = x,
                                .y = call.out("y", rows * width),
                                .alpha_p = p,
                                .alpha_n = n});
  const bool is_xielu = kind == Activation::xielu;
  kernels.run(
      ActivationBackward{.kind = kind,
                         .rows = rows,
                         .width = width,
                         .x = x,
                         .dy = call.in("dy"),
                         .dx = call.out("dx", rows * wide),
                         .alpha_p = p,
                         .alpha_n = n,
                         .dalpha_p = is_xielu ? call.out("dalpha_p", 1, Type::f32) : Array(),
                         .dalpha_n = is_xielu ? call.out("dalpha_n", 1, Type::f32) : Array()});
}

void attention(Kernels& kernels, Call& call) {
  AttentionShape s;
  s.sequences = call.number("sequences");
  s.queries = s.keys = call.number("positions");
  s.heads = call.number("heads");
  s.groups = call.number("groups");
  s.dim = s.value_dim = call.number("dim");
  s.scale = call.real("scale");
  s.window = call.number("window");
  const auto strides = [&](int64_t heads_of_group) {
    const int64_t width = s.groups * heads_of_group * s.dim;
    return HeadStrides{.position = s.sequences * width,
                       .sequence = width,
                       .group = heads_of_group * s.dim,
                       .head = s.dim};
  };
  const auto of_q = strides(s.heads / s.groups), of_k = strides(1);
  const int64_t count = s.queries * of_q.position, few = s.keys * of_k.position;
  const auto q = call.in("q"), k = call.in("k"), v = call.in("v");
  const auto y = call.out("y", count);
  float* log_sum = call.floats("log_sum", s.sequences * s.heads * s.queries);
  kernels.run(AttentionForward{.shape = s,
                               .q = q,
                               .k = k,
                               .v = v,
                               .q_strides = of_q,
                               .k_strides = of_k,
                               .v_strides = of_k,
                               .output = y,
                               .output_strides = of_q,
                               .log_sum = log_sum});
  kernels.run(AttentionBackward{.shape = s,
                                .q = q,
                                .k = k,
                                .v = v,
                                .output = y,
                                .doutput = call.in("dy"),
                                .q_strides = of_q,
                                .k_strides = of_k,
                                .v_strides = of_k,
                                .output_strides = of_q,
                                .log_sum = log_sum,
                                .dq = call.out("dq", count),
                                .dk = call.out("dk", few),
                                .dv = call.out("dv", few)});
}

void cross_entropy(Kernels& kernels, Call& call) {
  const int64_t rows = call.number("rows"), columns = call.number("columns");
  const auto logits = call.in("logits");
  const auto* targets = call.input<int32_t>("targets");
  float *maximum = call.floats("maximum", rows), *sum = call.floats("sum", rows);
  float* target = call.floats("target", rows);
  kernels.run(LogitMaximum{.rows = rows, .columns = columns, .logits = logits, .maximum = maximum});
  kernels.run(LogitSums{.rows = rows,
                        .columns = columns,
                        .logits = logits,
                        .targets = targets,
                        .maximum = maximum,
                        .sum = sum,
                        .target = target});
  kernels.run(CrossEntropyGradient{.rows = rows,
                                   .columns = columns,
                                   .logits = logits,
                                   .targets = targets,
                                   .maximum = maximum,
                                   .sum = sum,
                                   .target = target,
                                   .weight = call.input<float>("weight"),
                                   .loss = call.floats("loss", rows),
                                   .dlogits = call.out("dlogits", rows * columns)});
}

void embedding(Kernels& kernels, Call& call) {
  const int64_t count = call.number("count"), width = call.number("width");
  const int64_t rows = call.number("rows");
  const auto* ids = call.input<int32_t>("ids");
  kernels.run(EmbeddingForward{.count = count,
                               .width = width,
                               .rows = rows,
                               .ids = ids,
                               .table = call.in("table"),
                               .y = call.out("y", count * width)});
  kernels.run(EmbeddingBackward{.count = count,
                                .width = width,
                                .rows = rows,
                                .ids = ids,
                                .dy = call.in("dy"),
                                .dtable = call.out("dtable", rows * width, Type::f32)});
}

void step(Kernels& kernels, Call& call, bool is_adam) {
  StepInput input{.runs = {{.count = call.number("count"),
                            .gradient = call.in("gradient"),
                            .parameter = call.state("parameter"),
                            .learning_rate = call.real("rate"),
                            .weight_decay = call.real("decay")}}};
  input.runs[0].states = {Array(call.state("m")), Array(call.state("v"))};
  for (int64_t number = 1; number <= 3; ++number) {
    if (is_adam) {
      kernels.run(AdamStep{.step = input,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .epsilon = 1e-8,
                           .number = number,
                           .decoupled = call.number("decoupled") != 0});
    } else {
      kernels.run(SgdStep{.step = input, .momentum = 0.9, .number = number});
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const std::map<std::string, std::function<void(Kernels&, Call&)>> operations{
      {"matmul", matmul},
      {"norm", norm},
      {"activation", activation},
      {"attention", attention},
      {"cross_entropy", cross_entropy},
      {"embedding", embedding},
      {"adam", [](Kernels& k, Call& c) { step(k, c, true); }},
      {"sgd", [](Kernels& k, Call& c) { step(k, c, false); }}};
  if (count < 3 || !operations.contains(words[1])) {
    std::fputs("usage: run_operation OPERATION FOLDER NAME=NUMBER...\n", stderr);
    return 2;
  }
  Call call(count, words);
  operations.at(words[1])(*cpu_kernels(2), call);
  call.write();
}
