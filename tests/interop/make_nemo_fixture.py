"""Writes tests/fixtures/nemo: a NeMo 2 checkpoint, put together from the parts that NeMo itself uses.

    make_nemo_fixture.py FIXTURES      needs torch, megatron-core (0.16.1 was used), fiddle, pyyaml

No NeMo run stands behind it. The weights are those of tests/fixtures/megatron/hot_llama, saved by Megatron Core's own
dist_checkpointing under the keys that NeMo gives them ("module." before each). context/ follows nemo/lightning/io/mixin.py
(io_dump, _ordered_arguments_with_default): fiddle's JSON of the trainer context, PyYAML's safe_dump of the model with defaults, over
Megatron Core's TransformerConfig and the fields that NeMo's GPTConfig and Llama3Config add (nemo/collections/llm/gpt/model)."""
import dataclasses
import os
import pathlib
import queue
import shutil
import sys
import threading
import types
from typing import Callable, Optional

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import yaml
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

LAYERS = 4


def load(folder):
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {k: torch.empty(v.size, dtype=v.properties.dtype) for k, v in entries.items() if isinstance(v, TensorStorageMetadata)}
    dcp.load(tensors, storage_reader=FileSystemReader(folder), no_dist=True)
    return tensors


def sharded_state(tensors):
    from megatron.core.dist_checkpointing import ShardedTensor
    state = {}
    for name, tensor in tensors.items():
        key = 'module.' + name
        if '.layers.' not in name:
            state[key] = ShardedTensor.from_rank_offsets(key, tensor)
            continue
        for layer in range(LAYERS):
            parts = tensor[layer].chunk(2) if 'linear_fc1.weight' in name else [tensor[layer]]  # gate and up apart
            for i, part in enumerate(parts):
                offsets = [(0, layer, LAYERS)] + ([(1, i, 2)] if len(parts) == 2 else [])
                state[f'{key}.{layer}.{i}'] = ShardedTensor.from_rank_offsets(key, part.contiguous(), *offsets, prepend_axis_num=1)
    for part in ('param', 'exp_avg', 'exp_avg_sq'):
        key = f'optimizer.state.{part}.module.decoder.final_layernorm.weight'
        state[key] = ShardedTensor.from_rank_offsets(key, tensors['decoder.final_layernorm.weight'].float())
    return state


def write_weights(source, folder):
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    # Called even where there is no GPU.
    torch.cuda.synchronize = lambda *args: None
    torch.cuda.current_device = lambda: 'cpu'
    # Its forked writers hang on a host without GPU: threads do the same work.
    threads = types.SimpleNamespace(Queue=queue.Queue, JoinableQueue=queue.Queue, Process=threading.Thread)
    get_context = filesystem_async.mp.get_context
    filesystem_async.mp.get_context = lambda kind=None: threads if kind == 'fork' else get_context(kind)
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29533')
    dist.init_process_group('gloo', rank=0, world_size=1)
    state = {**sharded_state(load(source)), 'state_dict': {}, 'epoch': 0, 'global_step': 5, 'pytorch-lightning_version': '2.5.0',
             'loops': {'fit_loop': {'epoch_loop.batch_progress': {'total': {'completed': 5}}}}, 'lr_schedulers': []}
    dist_checkpointing.save(state, folder, content_metadata={'distrib_optim_sharding_type': 'fully_reshardable',
                                                             'singleton_local_shards': False, 'chained_optim_avoid_prefix': True})


def stand_in(module, name, bases, fields):
    """A class that calls itself `module`.`name`."""
    cls = dataclasses.make_dataclass(name, [(n, t, dataclasses.field(default=d)) for n, t, d in fields], bases=bases)
    cls.__module__ = module
    sys.modules.setdefault(module, types.ModuleType(module))
    setattr(sys.modules[module], name, cls)
    return cls


def classes():
    from megatron.core.transformer.transformer_config import TransformerConfig
    model = 'nemo.collections.llm.gpt.model'
    gpt = stand_in(f'{model}.base', 'GPTConfig', (TransformerConfig,), [
        ('fp16_lm_cross_entropy', bool, False), ('parallel_output', bool, True), ('share_embeddings_and_output_weights', bool, True),
        ('make_vocab_size_divisible_by', int, 128), ('position_embedding_type', str, 'learned_absolute'), ('rotary_base', int, 10000),
        ('rotary_percent', float, 1.0), ('seq_len_interpolation_factor', Optional[float], None), ('seq_length', int, 1024),
        ('vocab_size', Optional[int], None)])
    silu = torch.nn.functional.silu
    llama = stand_in(f'{model}.llama', 'Llama3Config', (gpt,), [
        ('normalization', str, 'RMSNorm'), ('activation_func', Callable, silu), ('gated_linear_unit', bool, True),
        ('position_embedding_type', str, 'rope'), ('add_bias_linear', bool, False), ('hidden_dropout', float, 0.0),
        ('attention_dropout', float, 0.0), ('share_embeddings_and_output_weights', bool, False), ('num_query_groups', int, 8),
        ('layernorm_epsilon', float, 1e-5), ('init_method_std', float, 0.01)])
    lightning = stand_in(f'{model}.llama', 'LlamaModel', (), [('config', object, None), ('optim', object, None), ('tokenizer', object, None),
                                                             ('model_transform', object, None)])
    tokenizer = stand_in('nemo.collections.common.tokenizers.huggingface.auto_tokenizer', 'AutoTokenizer', (), [
        ('pretrained_model_name', str, None), ('vocab_file', object, None)])
    strategy = stand_in('nemo.lightning.pytorch.strategies.megatron_strategy', 'MegatronStrategy', (), [
        ('tensor_model_parallel_size', int, 1), ('pipeline_model_parallel_size', int, 1), ('context_parallel_size', int, 1),
        ('expert_model_parallel_size', int, 1)])
    trainer = stand_in('nemo.lightning.pytorch.trainer', 'Trainer', (), [('strategy', object, None), ('max_steps', int, -1), ('devices', int, 1), ('num_nodes', int, 1)])
    context = stand_in('nemo.lightning.io.pl', 'TrainerContext', (), [('model', object, None), ('trainer', object, None)])
    return types.SimpleNamespace(llama=llama, lightning=lightning, tokenizer=tokenizer, strategy=strategy, trainer=trainer, context=context)


def write_context(folder):
    import fiddle as fdl
    from fiddle._src import config as config_lib
    from fiddle._src.experimental import serialization
    c = classes()
    config = fdl.Config(c.llama, num_layers=LAYERS, hidden_size=32, ffn_hidden_size=88, num_attention_heads=4, num_query_groups=2,
                        seq_length=128, rotary_base=500000, vocab_size=250, make_vocab_size_divisible_by=32, bf16=True, params_dtype=torch.bfloat16)
    model = fdl.Config(c.lightning, config=config, tokenizer=fdl.Config(c.tokenizer, pretrained_model_name='nemo_tokenizer'))
    trainer = fdl.Config(c.trainer, strategy=fdl.Config(c.strategy, tensor_model_parallel_size=2, context_parallel_size=1),
                         max_steps=5, devices=4, num_nodes=1)
    # The JSON knows no dtype: NeMo registers one (nemo/lightning/io/fdl_torch.py). Left out here.
    bare = fdl.Config(c.lightning, config=fdl.Config(c.llama, num_layers=LAYERS, hidden_size=32))
    (folder / 'io.json').write_text(serialization.dump_json(fdl.Config(c.context, model=bare, trainer=trainer)))

    def with_defaults(dumper, data):
        values = {k: (v if not isinstance(v, dataclasses._HAS_DEFAULT_FACTORY_CLASS) else None)
                  for k, v in config_lib.ordered_arguments(data, include_defaults=True).items()}
        target = config_lib.get_callable(data)
        return dumper.represent_data({**values, '_target_': f'{target.__module__}.{target.__qualname__}'})

    def as_target(dumper, data):
        named = hasattr(data, '__qualname__')
        cls = data if named else type(data)
        return dumper.represent_data({'_target_': f'{cls.__module__}.{cls.__qualname__}', '_call_': not named})

    yaml.SafeDumper.add_representer(config_lib.Config, with_defaults)
    yaml.SafeDumper.add_representer(torch.dtype, lambda dumper, data: dumper.represent_data({'_target_': str(data), '_call_': False}))
    yaml.SafeDumper.add_multi_representer(object, as_target)
    (folder / 'model.yaml').write_text(yaml.safe_dump(model))


def main(fixtures):
    folder = fixtures / 'nemo'
    shutil.rmtree(folder, ignore_errors=True)
    (folder / 'context').mkdir(parents=True)
    (folder / 'weights').mkdir()
    write_context(folder / 'context')
    os.chdir(folder)  # the path is part of the metadata
    write_weights(fixtures / 'megatron/hot_llama/iter_0000005', 'weights')


if __name__ == '__main__':
    main(pathlib.Path(sys.argv[1]).resolve())
