"""Puts the weights of a Megatron-LM run into a live transformers model, tensor by tensor.

    python weights_into_transformers.py RUN [TOKEN...]

Whatever layout the run was saved at; in bounded memory, as an RL loop would refresh its sampler.
"""

import sys

import torch
import transformers

import ferry

run, tokens = sys.argv[1], [int(token) for token in sys.argv[2:]] or [1, 2, 3]
with ferry.open(run) as checkpoint:
    source = checkpoint.hf()  # the same tensors under Hugging Face's names, converted as they are read
    config = transformers.AutoConfig.for_model(**source.config)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    state = model.state_dict()
    others = {}  # experts, which transformers may keep as one tensor; layers that it does not have
    for name, tensor in source.stream(memory="1GiB", framework="pt"):
        if name in state:
            state.pop(name).copy_(tensor)
        else:
            others[name] = tensor
    if state and others:
        how = {"config": config, "state_dict": others, "output_loading_info": True}
        fused, info = type(model).from_pretrained(None, **how)
        for name in set(state) - set(info["missing_keys"]):
            state.pop(name).copy_(fused.state_dict()[name])
    if config.tie_word_embeddings:
        model.tie_weights()
        state.pop("lm_head.weight", None)
    if state:
        sys.exit(f"the run has no {', '.join(state)}")
    print(f"{source.family}: {source.parameters:,} parameters of iteration {checkpoint.iteration}")
with torch.inference_mode():
    print(model.generate(torch.tensor([tokens]), max_new_tokens=8, do_sample=False)[0].tolist())
