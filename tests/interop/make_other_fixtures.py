"""Small files of other programs that ferry names without reading them. Usage: make_other_fixtures.py FOLDER (needs torch, safetensors)"""
import json, os, sys
import torch
from safetensors.torch import save_file

def main(folder):
    os.makedirs(os.path.join(folder, 'adapter'), exist_ok=True)
    torch.jit.script(torch.nn.Linear(4, 4)).save(os.path.join(folder, 'script.pt'))
    # As peft's save_pretrained() lays it out.
    layer = 'base_model.model.model.layers.0.self_attn.q_proj.'
    save_file({layer + 'lora_A.weight': torch.ones(2, 4), layer + 'lora_B.weight': torch.ones(4, 2)},
              os.path.join(folder, 'adapter/adapter_model.safetensors'), {'format': 'pt'})
    config = dict(base_model_name_or_path='someone/base-8b', lora_alpha=4, peft_type='LORA', r=2, target_modules=['q_proj'], task_type='CAUSAL_LM')
    with open(os.path.join(folder, 'adapter/adapter_config.json'), 'w') as file: json.dump(config, file, indent=2)

if __name__ == '__main__':
    main(sys.argv[1])
