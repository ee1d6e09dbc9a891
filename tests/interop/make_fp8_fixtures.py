"""Has the peers' own programs quantise a small model by blocks, and dequantise it again, on a CPU.

Usage: make_fp8_fixtures.py SLIME DEEPSEEK FOLDER
SLIME: a tree of github.com/THUDM/slime (tools/convert_hf_to_fp8.py). DEEPSEEK: the folder inference/ of github.com/deepseek-ai/DeepSeek-V3
(fp8_cast_bf16.py, kernel.py). Needs torch, safetensors, tqdm and triton, whose interpreter runs DeepSeek's kernel.
Writes FOLDER/model (random weights), FOLDER/fp8 (slime's of it) and FOLDER/bf16 (DeepSeek's of that)."""
import json, os, runpy, shutil, sys, types
os.environ['TRITON_INTERPRET'] = '1'
import safetensors.torch, torch

CONFIG = {
    'architectures': ['LlamaForCausalLM'], 'model_type': 'llama', 'hidden_size': 136, 'intermediate_size': 130, 'num_hidden_layers': 1,
    'num_attention_heads': 4, 'vocab_size': 24, 'rope_theta': 1e4, 'rms_norm_eps': 1e-6, 'zeta_limit': float('inf'), 'torch_dtype': 'bfloat16'}

def tensors():
    """Blocks that are cut, of zeros, of one large value among small ones, of values that fall between codes; three dtypes."""
    torch.manual_seed(7)
    up = torch.randn(136, 130, dtype=torch.bfloat16)
    up[128:, :128] = 0
    down = torch.randn(3, 300).half() * 0.02
    gate = torch.randn(60, 130)
    gate[5, 5] = 3e4
    spread = torch.randn(130, 136).bfloat16() * torch.logspace(-6, 3, 136).bfloat16()
    layer = 'model.layers.0.'
    return {
        'model.embed_tokens.weight': torch.randn(24, 136).bfloat16(), layer + 'self_attn.q_proj.weight': spread,
        layer + 'mlp.up_proj.weight': up, layer + 'mlp.down_proj.weight': down, layer + 'mlp.gate_proj.weight': gate,
        layer + 'self_attn.q_proj.bias': torch.randn(130).bfloat16(), layer + 'mlp.gate.weight': torch.randn(4, 136),
        layer + 'input_layernorm.weight': torch.randn(136).bfloat16(), 'lm_head.weight': torch.randn(24, 136).bfloat16()}

def make_model(folder):
    os.makedirs(folder)
    safetensors.torch.save_file(tensors(), os.path.join(folder, 'model.safetensors'), {'format': 'pt'})
    with open(os.path.join(folder, 'config.json'), 'w') as file: json.dump(CONFIG, file, indent=2)

def run(script, *arguments):
    """A script as if it stood on a machine with an accelerator, which here is the CPU."""
    accelerator = types.SimpleNamespace(memory_allocated=lambda: 0, device_name=lambda: 'cpu', empty_cache=lambda: None)
    sys.modules['slime'] = types.ModuleType('slime')
    sys.modules['slime.utils'] = types.SimpleNamespace(accelerator=accelerator)
    load_file = safetensors.torch.load_file
    safetensors.torch.load_file = lambda path, device=None: load_file(path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    try: runpy.run_path(script, run_name='__main__')
    finally:
        safetensors.torch.load_file = load_file
        torch.set_default_dtype(torch.float32)

def round_as_gpus_do(deepseek):
    """Triton's interpreter cuts fp32 to bf16 where GPUs round to nearest even: the kernel gives fp32, and PyTorch rounds."""
    sys.path.insert(0, deepseek)
    import kernel
    dequantise = kernel.weight_dequant
    def exact(codes, scales):
        torch.set_default_dtype(torch.float32)
        try: return dequantise(codes, scales).bfloat16()
        finally: torch.set_default_dtype(torch.bfloat16)
    kernel.weight_dequant = exact

def main(slime, deepseek, folder):
    model, fp8, bf16 = (os.path.join(folder, name) for name in ('model', 'fp8', 'bf16'))
    for old in (model, fp8, bf16): shutil.rmtree(old, ignore_errors=True)
    make_model(model)
    run(os.path.join(slime, 'tools/convert_hf_to_fp8.py'), '--model-dir', model, '--save-dir', fp8, '--block-size', '128', '128')
    round_as_gpus_do(deepseek)
    run(os.path.join(deepseek, 'fp8_cast_bf16.py'), '--input-fp8-hf-path', fp8, '--output-bf16-hf-path', bf16)

if __name__ == '__main__':
    main(*sys.argv[1:])
