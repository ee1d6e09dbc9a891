#include "tools/terminal/other_formats.h"

#include <string_view>
#include <utility>
#include <vector>

namespace ferry::tool {
namespace {

struct OtherFormat {
  std::vector<std::string_view> names;
  std::string_view what;
};

std::map<std::string, std::string> make_formats() {
  const OtherFormat formats[] = {
      {{"dcp", "torch_dcp"},
       "`ferry reshard PATH OUT --to dcp` writes a PyTorch DCP of any checkpoint"},
      {{"fsdp_dtensor", "megatron_fsdp", "fsdp"},
       "`ferry reshard RUN OUT --to fsdp_dtensor` writes what Megatron-FSDP loads"},
      {{"megatron", "megatron_lm", "mcore", "megatron_core"},
       "Megatron-LM's format is torch_dist; torch is its older one (mp_rank_*)"},
      {{"huggingface", "hugging_face", "transformers"}, "`--to hf` writes a Hugging Face model"},
      {{"safetensors"}, "`ferry convert PATH OUT --to safetensors` writes tensors as they are"},
      {{"pt", "pth", "bin", "pytorch", "torch_save"},
       "`ferry convert PATH OUT --to safetensors` writes files that safetensors.torch.load_file "
       "reads"},
      {{"gguf", "ggml", "llama.cpp"},
       "`ferry convert PATH OUT --to hf`, and llama.cpp's convert_hf_to_gguf.py writes GGUF of "
       "OUT"},
      {{"onnx"},
       "`ferry convert PATH OUT --to hf`, and `optimum-cli export onnx --model OUT` does"},
      {{"mlx"}, "`ferry convert PATH OUT --to hf`, and `mlx_lm.convert --hf-path OUT` does"},
      {{"nemo", "nemo2", "megatron_bridge"},
       "`ferry convert PATH OUT --to hf`, and Megatron Bridge's AutoBridge.import_ckpt() reads "
       "OUT"},
      {{"fp8"}, "`ferry convert PATH OUT --to hf --quantize fp8` writes weights in fp8"},
      {{"awq", "gptq", "int4", "int8", "nvfp4", "mxfp4"},
       "`ferry convert PATH OUT --to hf`, and a quantising program (llm-compressor) reads OUT"}};
  std::map<std::string, std::string> all;
  for (const OtherFormat& format : formats) {
    for (const std::string_view name : format.names) all.emplace(name, format.what);
  }
  return all;
}

}  // namespace

const std::map<std::string, std::string>& other_formats() {
  static const std::map<std::string, std::string> formats = make_formats();
  return formats;
}

}  // namespace ferry::tool
