"""A tiny model of transformers in Megatron Bridge's own modules on a CPU, for check_bridge.py.

Run under megatron_cpu's cpu_shim.py: bridge_model.py HF RUN SAVED CHANGES     with Megatron-LM and Megatron Bridge on the path
  1. ferry's run RUN is loaded into the modules, which must want all of its tensors and no others
  2. they compute the logits of transformers
  3. Bridge's own import of HF gives the same tensors, bit for bit
  4. SAVED becomes what Bridge saves: those tensors and its run_config.yaml
CHANGES, JSON: members of the provider that Bridge does not take from config.json. Prints a line of JSON."""
import json, logging, os, shutil, sys, warnings
warnings.filterwarnings('ignore')
logging.disable(logging.WARNING)
import torch
os.environ.update(MASTER_ADDR='localhost', RANK='0', WORLD_SIZE='1', LOCAL_RANK='0')
torch.distributed.init_process_group('gloo')
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
parallel_state.initialize_model_parallel()
model_parallel_cuda_manual_seed(1)
import megatron.bridge.models.conversion.model_bridge as model_bridge
from megatron.bridge import AutoBridge
from megatron.bridge.training.utils.config_utils import _ConfigContainerBase as ConfigContainer
from megatron.bridge.utils.yaml_utils import dump_dataclass_to_yaml
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

hf, run, saved, changes = sys.argv[1:5]
# What a CPU has not, and fp32. JSON has no tuples.
SETTINGS = dict(bf16=False, fp16=False, params_dtype=torch.float32, autocast_dtype=torch.float32, gradient_accumulation_fusion=False, use_cpu_initialization=True,
                perform_initialization=False, moe_permute_fusion=False, moe_grouped_gemm=False, masked_softmax_fusion=False, bias_activation_fusion=False,
                bias_dropout_fusion=False, apply_rope_fusion=False, persist_layer_norm=False, cross_entropy_loss_fusion=False, moe_token_dispatcher_type='allgather',
                make_vocab_size_divisible_by=1, should_pad_vocab=False)
# MiMo's own class is Qwen2's, with layers for multi-token prediction that its logits do not need.
MiMoConfig = type('MiMoConfig', (Qwen2Config,), {'model_type': 'mimo'})
MiMoForCausalLM = type('MiMoForCausalLM', (Qwen2ForCausalLM,), {'config_class': MiMoConfig})
AutoConfig.register('mimo', MiMoConfig)
AutoModelForCausalLM.register(MiMoConfig, MiMoForCausalLM)


def plain_positions(config, device=None, seq_len=None):
    """Those of transformers before 5, which Ling's own class asks it for. What Bridge has for them instead rotates whole heads."""
    rotated = int(config.head_dim * getattr(config, 'partial_rotary_factor', 1.0))
    return 1.0 / config.rope_theta ** (torch.arange(0, rotated, 2).float() / rotated), 1.0


bridge = AutoBridge.from_hf_pretrained(hf)
config = bridge.hf_pretrained.config
if config.model_type == 'bailing_moe_v2': ROPE_INIT_FUNCTIONS['default'] = plain_positions
if config.model_type == 'gemma4_text':  # what Bridge asks for under the names of releases without per_layer_config
    of_full = config.per_layer_config[config.layer_types.index('full_attention')]
    config.allow_global_per_layer_attribute_access = True
    config.global_head_dim, config.num_global_key_value_heads = of_full.head_dim, of_full.num_key_value_heads
provider = bridge.to_megatron_provider(load_weights=False)
for name, value in {**SETTINGS, **json.loads(changes)}.items():
    if hasattr(provider, name): setattr(provider, name, tuple(value) if isinstance(value, list) else value)
provider.finalize()
model = provider.provide(pre_process=True, post_process=True).eval()


def parameters(): return {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor) and '_extra_state' not in name}


def logits():
    tokens, size = torch.arange(1, 33)[None], 32
    mask = torch.triu(torch.ones(size, size, dtype=torch.bool), 1)[None, None]
    with torch.no_grad(): return model(tokens, torch.arange(size)[None], mask).float(), tokens


folder = next(name for name in os.listdir(run) if name == 'release' or name.startswith('iter_'))
loaded, *keys = dist_checkpointing.load(model.sharded_state_dict(), os.path.join(run, folder), strict='return_all')
wrong = sorted(key for some in keys for key in some if '_extra_state' not in key)
if wrong: sys.exit(f'missing or unexpected: {wrong}')
model.load_state_dict(loaded, strict=False)
of_ferry, (computed, tokens) = parameters(), logits()


def of_its_class(attention):
    """The logits of transformers' class, or of the type's own one, whose buffers from_pretrained() does not fill."""
    model_class = AutoModelForCausalLM._model_mapping[type(config)]
    if model_class.__module__.startswith('transformers.'): reference = AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32, attn_implementation=attention)
    else:
        reference = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)
        missing, unexpected = reference.load_state_dict(load_file(os.path.join(hf, 'model.safetensors')), strict=False)
        if missing or any('mtp_layers' not in name for name in unexpected): sys.exit(f'missing {missing}, unexpected {unexpected}')
    with torch.no_grad(): return reference.eval()(tokens, use_cache=False).logits.float()


expected = of_its_class('eager')
own = (of_its_class('sdpa') - expected).abs().max() / expected.abs().mean()
difference = (computed[..., :expected.shape[-1]] - expected).abs().max() / expected.abs().mean()

tasks = model_bridge.MegatronModelBridge.build_conversion_tasks  # has None for what it does not map
model_bridge.MegatronModelBridge.build_conversion_tasks = lambda *a, **k: [task for task in tasks(*a, **k) if task is not None]
bridge.load_hf_weights([model])
of_bridge = parameters()
differ = [name for name in of_ferry if not torch.equal(of_ferry[name], of_bridge[name])]

# As Bridge saves it: the same tensors, and a configuration instead of Megatron-LM's arguments.
iteration = os.path.join(saved, 'iter_0000001')
shutil.copytree(os.path.join(run, folder), iteration)
common = torch.load(os.path.join(iteration, 'common.pt'), weights_only=False)
del common['args']
torch.save(common, os.path.join(iteration, 'common.pt'))
with open(os.path.join(saved, 'latest_checkpointed_iteration.txt'), 'w') as file: file.write('1')
dump_dataclass_to_yaml({'model': ConfigContainer._convert_value_to_dict(provider)}, os.path.join(iteration, 'run_config.yaml'))
print(json.dumps(dict(parameters=len(of_ferry), logits=difference.item(), own=own.item(), differ=differ[:4])))
