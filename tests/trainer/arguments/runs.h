// The command lines of the runs whose logs are in tests/fixtures/megatron_logs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/parse.h"

namespace ferry::test {

inline std::vector<std::string> words_of(std::string_view text) {
  return split_words(text, "test");
}

inline TrainArguments parsed(std::string_view line) {
  return parse_arguments(words_of(line), MemoryFileSystem());
}

struct Completed {
  TrainArguments arguments;
  std::vector<std::string> notes;
};

inline Completed completed(std::string_view line, const Launch& launch = {}) {
  Completed result{parsed(line), {}};
  complete_arguments(result.arguments, launch, result.notes);
  return result;
}

/// Arguments of all of them.
inline std::string common_words(const std::string& name) {
  return "--transformer-impl local --no-persist-layer-norm --no-gradient-accumulation-fusion "
         "--no-masked-softmax-fusion --no-rope-fusion --seq-length 64 --max-position-embeddings "
         "128 "
         "--micro-batch-size 2 --global-batch-size 8 --lr 1e-3 --min-lr 1e-4 --lr-decay-iters 100 "
         "--lr-warmup-iters 5 --lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0 "
         "--adam-beta2 0.95 --tokenizer-type NullTokenizer --vocab-size 250 "
         "--make-vocab-size-divisible-by 32 --split 99,1,0 --eval-iters 0 --log-interval 1 "
         "--eval-interval 1000 --init-method-std 0.02 --attention-dropout 0 --hidden-dropout 0 "
         "--bf16 --data-path /tmp/ck/data/corpus_a_text_document --data-cache-path cache_" +
         name + " --save " + name +
         " --save-interval 5 --train-iters 30 --exit-interval 5 "
         "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 88 ";
}

inline std::string llama_words() {
  return common_words("llama_tp2pp2_full") +
         "--group-query-attention --num-query-groups 2 --swiglu --disable-bias-linear "
         "--normalization RMSNorm --position-embedding-type rope --rotary-base 500000 "
         "--untie-embeddings-and-output-weights --tensor-model-parallel-size 2 "
         "--pipeline-model-parallel-size 2 --use-distributed-optimizer "
         "--dist-ckpt-optim-fully-reshardable ";
}

inline std::string gpt2_words() {
  return common_words("gpt2_tp2") + "--tensor-model-parallel-size 2 --use-distributed-optimizer ";
}

inline std::string deepseek_words() {
  return common_words("deepseek_ep2") +
         "--swiglu --disable-bias-linear --normalization RMSNorm --norm-epsilon 1e-6 "
         "--position-embedding-type rope --untie-embeddings-and-output-weights --qk-layernorm "
         "--multi-latent-attention --q-lora-rank 24 --kv-lora-rank 16 --qk-head-dim 16 "
         "--qk-pos-emb-head-dim 8 --v-head-dim 16 --num-experts 8 --moe-layer-freq '[0]*1+[1]*3' "
         "--moe-ffn-hidden-size 48 --moe-shared-expert-intermediate-size 48 --moe-router-topk 2 "
         "--moe-router-score-function sigmoid --moe-router-pre-softmax "
         "--moe-router-topk-scaling-factor 2.5 --moe-router-enable-expert-bias "
         "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4 "
         "--moe-token-dispatcher-type alltoall --expert-model-parallel-size 2 --seed 99 "
         "--dist-ckpt-optim-fully-reshardable "
         "--use-distributed-optimizer --dist-ckpt-optim-fully-reshardable --seed 99 ";
}

}  // namespace ferry::test
