"""Holds ferry's reading of torchtitan's own names against torchtitan's own adapters: from_hf() of a tiny model of transformers, saved with torch.save and with
PyTorch's DCP, must become that model again. Called by check_foreign.py; where torchtitan is installed."""
import os
import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import MagicMock
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../fixtures'))
import torch
import torch.distributed.checkpoint as dcp
from checkpoints import call
from safetensors.torch import load_file
from tiny_models import make_model


def only_the_adapters():
    """torchtitan's packages want a PyTorch of their own day: the modules of its adapters are imported without what is around them."""
    if 'torchtitan' in sys.modules: return
    root = importlib.util.find_spec('torchtitan').submodule_search_locations[0]
    for package in ('', '.models', '.models.llama3', '.models.qwen3', '.models.deepseek_v3', '.protocols'):
        module = ModuleType('torchtitan' + package)
        module.__path__ = [root + package.replace('.', '/')]
        sys.modules['torchtitan' + package] = module
    for name in ('models.common', 'models.common.rope', 'models.common.decoder', 'models.llama3.model', 'models.qwen3.model', 'models.deepseek_v3.model',
                 'protocols.model', 'tools', 'tools.logging'):
        sys.modules['torchtitan.' + name] = MagicMock()


def adapter_of(case, config):
    """torchtitan's adapter, on as much of its configuration as it reads."""
    moe = SimpleNamespace(num_experts=getattr(config, 'num_experts', None) or getattr(config, 'n_routed_experts', None))
    attention = SimpleNamespace(n_heads=config.num_attention_heads, n_kv_heads=config.num_key_value_heads, head_dim=getattr(config, 'head_dim', None),
                                q_lora_rank=getattr(config, 'q_lora_rank', None) or 0)
    layers = [SimpleNamespace(attention=attention, moe=moe if moe.num_experts else None) for _ in range(config.num_hidden_layers)]
    model = SimpleNamespace(layers=layers, dim=config.hidden_size, enable_weight_tying=config.tie_word_embeddings, mtp_layers=[])
    if case.startswith('llama'): from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter as Adapter
    elif case.startswith('qwen3'): from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter as Adapter
    else: from torchtitan.models.deepseek_v3.state_dict_adapter import DeepSeekV3StateDictAdapter as Adapter
    adapter = Adapter(model, None)
    adapter._validate_hf_rope_config = lambda *_: None
    return adapter


def check_torchtitan(ferry, work, report):
    from transformers import AutoConfig
    only_the_adapters()
    for case in ('llama', 'qwen3', 'qwen3_moe', 'deepseek_v3'):
        def wrong():
            hf = f'{work}/titan_{case}'
            make_model(hf, case)
            expected = load_file(f'{hf}/model.safetensors')
            titan = adapter_of(case, AutoConfig.from_pretrained(hf)).from_hf(dict(expected))
            older = {n.replace('qkv_linear.', '').replace('routed_experts.inner_experts.', 'experts.').replace('_EFD', '').replace('_EDF', '')
                      .replace('expert_bias_E', 'expert_bias').replace('lm_head.', 'output.'): t for n, t in titan.items()}
            torch.save(older, f'{hf}.pt')
            dcp.save({'model': titan, 'step': torch.tensor(3)}, checkpoint_id=f'{hf}_dcp', no_dist=True)
            for source in (f'{hf}.pt', f'{hf}_dcp'):
                call(ferry, 'convert', source, f'{hf}_out', '--overwrite', '--to', 'hf', '--config', hf)
                found = load_file(f'{hf}_out/model.safetensors')
                for name in sorted(found.keys() | expected.keys()):
                    if name not in found: yield f'{os.path.basename(source)}: {name} is missing'
                    elif name not in expected: yield f'{os.path.basename(source)}: {name} should not be there'
                    elif not torch.equal(found[name], expected[name]): yield f'{os.path.basename(source)}: {name} differs'
        report.add(f'torchtitan {case}', wrong())
