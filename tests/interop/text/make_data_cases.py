#!/usr/bin/env python3
"""make_data_cases.py OUT [CASES [SEED]]: what Megatron Core makes of many settings of data: the files of its caches, by
MD5, and samples. Written as JSON, one case a line, for tests/trainer/data/megatron_cases_test.cpp. The
token files are those of tests/fixtures/data; names in the descriptions are relative to that folder.
CASES: so many random settings besides the chosen ones (8, the fixture's). Those that Megatron Core refuses
are left out.
"""
import hashlib
import json
import os
import random
import sys
import tempfile

import numpy
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig, MockGPTDataset
from megatron.core.datasets.utils import get_blend_from_list

A, B = "corpus_a_text_document", "corpus_b_text_document"
DEFAULTS = {"seq_length": 64, "seed": 1234, "split": "90, 8, 2", "samples": [100, 10, 4], "drop_last": True,
            "reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False,
            "vocab_size": 300, "eod": 250, "pad": -1, "surplus": 0.005}


class Tokenizer:
    """What a dataset reads of Megatron-LM's NullTokenizer, with an end-of-document token of one's choice."""

    def __init__(self, settings):
        self.vocab_size, self.eod, self.pad = settings["vocab_size"], settings["eod"], settings["pad"]
        self.unique_identifiers = {"class": "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText",
                                   "tokenizer_path": None, "vocab_size": str(self.vocab_size), "pad_id": str(self.pad)}


def build(case, cache):
    settings = {**DEFAULTS, **case}
    blend = get_blend_from_list(settings.get("data_path"))
    per_split = None
    if "train_data_path" in settings:
        per_split = [get_blend_from_list(settings.get(f"{s}_data_path")) for s in ("train", "valid", "test")]
    config = GPTDatasetConfig(
        random_seed=settings["seed"], sequence_length=settings["seq_length"], blend=blend, blend_per_split=per_split,
        split=None if per_split else settings["split"], path_to_cache=cache, tokenizer=Tokenizer(settings),
        reset_position_ids=settings["reset_position_ids"], reset_attention_mask=settings["reset_attention_mask"],
        eod_mask_loss=settings["eod_mask_loss"], mid_level_dataset_surplus=settings["surplus"],
        drop_last_partial_validation_sequence=settings["drop_last"])
    kind = GPTDataset if blend or per_split else MockGPTDataset
    return BlendedMegatronDatasetBuilder(kind, settings["samples"], lambda: True, config).build()


def starts_of(mask):
    """Where attention begins anew: rows of a mask (true: hidden) whose token sees nothing before it."""
    visible = ~mask[0]
    return [i for i in range(visible.shape[0]) if int(visible[i].to(torch.int).argmax()) == i]


def sample_record(dataset, index):
    item = dataset[index]
    text = b"".join(item[key].numpy().astype(kind).tobytes() for key, kind in
                    (("tokens", "<i4"), ("labels", "<i4"), ("loss_mask", "<f4"), ("position_ids", "<i4")))
    return {"index": index, "md5": hashlib.md5(text).hexdigest(), "starts": starts_of(item["attention_mask"]),
            "first": item["tokens"][:4].tolist()}


def record(case):
    with tempfile.TemporaryDirectory() as cache:
        splits = build(case, cache)
        files = {name: hashlib.md5(open(os.path.join(cache, name), "rb").read()).hexdigest()
                 for name in sorted(os.listdir(cache))}
        samples = {}
        for name, dataset in zip(("train", "valid", "test"), splits):
            if dataset is None:
                continue
            size = len(dataset)
            numbers = sorted({0, 1, size // 2, size - 1} & set(range(size)))
            samples[name] = {"size": size, "samples": [sample_record(dataset, i) for i in numbers]}
    return {"options": case, "files": files, "splits": samples}


def cases():
    four = ["0.1", A, "0.2", B, "0.4", A, "0.3", B]
    yield {"data_path": [A], "split": "969, 20, 11"}
    yield {"data_path": [A], "split": "98,2,0", "samples": [2000, 20, 0], "seed": 28}
    yield {"data_path": [B], "split": "100,0,0", "samples": [5, 0, 0], "seq_length": 1000}
    yield {"data_path": ["1.5", A], "split": "8,1,1"}
    yield {"data_path": [A, B, B], "split": "90,5,5", "samples": [300, 8, 8], "seed": 4294967295}
    yield {"data_path": [A, B], "split": "90,5,5", "samples": [None, None, None], "seed": 0}
    yield {"data_path": four, "split": "7,2,1", "samples": [1000, 100, 50], "seed": 3}
    yield {"data_path": four * 3, "split": "90,8,2", "samples": [5000, 33, 7], "seq_length": 17}
    yield {"data_path": [A], "split": "60,39,1", "samples": [None, None, None], "drop_last": False, "seq_length": 100}
    yield {"data_path": [A], "split": "60,39,1", "samples": [900, 700, 9], "drop_last": False, "seq_length": 77, "seed": 7,
           "eod_mask_loss": True}
    yield {"train_data_path": ["0.25", A, "0.75", B], "valid_data_path": [A], "test_data_path": ["1", B],
           "samples": [400, 30, 4]}
    yield {"train_data_path": [A, B], "valid_data_path": ["2", A, "1", B], "samples": [70, 20, 0], "seed": 99}
    yield {"data_path": [A], "reset_position_ids": True, "reset_attention_mask": True, "eod_mask_loss": True, "seq_length": 333}
    yield {"data_path": [B], "reset_position_ids": True, "seq_length": 200}
    yield {"data_path": [B], "reset_attention_mask": True, "seq_length": 200}
    yield {"data_path": [A], "pad": 7, "eod": 0, "drop_last": False, "split": "50,50", "samples": [None, None, None]}
    yield {"samples": [1000, 100, 10], "vocab_size": 1000, "eod": 999, "seq_length": 512, "eod_mask_loss": True}


def random_case(number):
    draw = random.Random(number)
    paths = [draw.choice((A, B)) for _ in range(draw.choice((1, 1, 2, 3, 5, 9, 20)))]
    weighted = draw.random() < 0.6
    words = [w for p in paths for w in ([f"{draw.uniform(0.01, 3):.{draw.randint(1, 6)}f}1", p] if weighted else [p])]
    # A split without sequences from which samples are requested is an endless loop there: none is so small.
    case = {"data_path": words, "seed": draw.choice((0, 1, 1234, draw.randrange(2 ** 32))),
            "seq_length": draw.choice((1, 2, 16, 64, 128, draw.randint(3, 700))),
            "split": f"{draw.randint(50, 99)},{draw.randint(5, 30)},{draw.randint(5, 30)}",
            "samples": [draw.randint(1, 4000), draw.randint(0, 300), draw.randint(0, 60)],
            "drop_last": draw.random() < 0.7, "surplus": draw.choice((0.005, 0.05)),
            "eod_mask_loss": draw.random() < 0.5, "reset_position_ids": draw.random() < 0.5,
            "reset_attention_mask": draw.random() < 0.5}
    if not weighted and draw.random() < 0.3:
        case["samples"] = [None, None, None]
    return case


def main(out, count=8, seed=0):
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fixtures", "data"))
    with open(out, "w") as file:
        for case in [*cases(), *(random_case(n) for n in range(int(seed), int(seed) + int(count)))]:
            try:
                file.write(json.dumps(record(case), separators=(",", ":")) + "\n")
            except (IndexError, AssertionError) as error:
                print("left out:", case, repr(error)[:200])


if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("FERRY_TEST_PORT", "29433"), RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo")
    main(os.path.abspath(sys.argv[1]), *sys.argv[2:])
