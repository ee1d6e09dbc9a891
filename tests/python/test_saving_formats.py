"""Megatron-LM's formats and Hugging Face's, of tensors that were read from such a run."""

import pytest

import ferry

torch = pytest.importorskip("torch")


@pytest.fixture
def state(trained_run):
    with ferry.open(trained_run) as checkpoint:
        tensors = checkpoint.load(framework="pt")
        states = {f"optimizer.state.{key.rpartition('.')[2]}.{key.rpartition('.')[0]}": tensor
                  for key, tensor in checkpoint.optimizer.items()}  # fmt: skip
        tensors.update((name, tensor.torch()) for name, tensor in states.items())
    return tensors


@pytest.mark.parametrize("format", ["torch_dist", "async torch_dist"])
def test_a_run_of_megatron(trained_run, tmp_path, state, format):
    state["decoder.final_layernorm.weight"] += 1
    changed = state["decoder.final_layernorm.weight"].float()
    state["optimizer.state.param.decoder.final_layernorm.weight"] = changed
    if format == "torch_dist":
        ferry.save(state, tmp_path / "run", iteration=12, format="torch_dist", like=trained_run)
    else:
        with ferry.AsyncSaver(tmp_path / "run", format="torch_dist", like=trained_run) as saver:
            saver.save(state, 12).wait()
    assert ferry.verify(tmp_path / "run")
    with ferry.open(tmp_path / "run") as saved, ferry.open(trained_run) as began:
        assert saved.format == "torch_dist" and saved.iteration == 12
        assert saved.args.num_layers == began.args.num_layers
        assert list(saved.optimizer) == list(began.optimizer)
        for name in saved:
            assert torch.equal(saved[name].torch(), state[name]), name
    report = ferry.diff(trained_run, tmp_path / "run")
    different = {row.name for row in report.tensors if row.status != "equal"}
    assert different == {"decoder.final_layernorm.weight",
                         "optimizer.state.param.decoder.final_layernorm.weight"}  # fmt: skip


def test_without_the_optimizer(trained_run, tmp_path, state):
    model = {name: tensor for name, tensor in state.items() if not name.startswith("optimizer.")}
    ferry.save(model, tmp_path / "run", format="torch_dist", like=ferry.open(trained_run),
               optimizer="none", release="0.16")  # fmt: skip
    with ferry.open(tmp_path / "run") as saved:
        assert len(saved.optimizer) == 0 and len(saved) == len(model)
    with pytest.raises(ferry.Invalid, match="optimizer='lots' is none"):
        ferry.save(model, tmp_path / "run", format="torch_dist", like=trained_run, optimizer="lots")


def test_rank_folders_need_their_ranks(trained_run, tmp_path, state):
    with pytest.raises(ferry.Mismatch, match="for rank 2 of the layout"):
        ferry.save(state, tmp_path / "run", format="torch", like=trained_run)
    ferry.reshard(trained_run, tmp_path / "one", tensor=1, data=1)
    ferry.save(state, tmp_path / "run", format="torch", like=tmp_path / "one", iteration=4)
    with ferry.open(tmp_path / "run") as saved:
        assert saved.format == "torch" and saved.iteration == 4
    assert ferry.verify(tmp_path / "run") and ferry.diff(trained_run, tmp_path / "run")


def test_what_the_run_has_not(trained_run, tmp_path):
    with pytest.raises(ferry.Error) as raised:
        ferry.save({"mine": torch.ones(2)}, tmp_path / "run", format="torch", like=trained_run)
    assert "mine" in str(raised.value)
    with pytest.raises(ferry.NotFound):
        ferry.save({}, tmp_path / "run", format="torch_dist", like=tmp_path / "gone")


def test_a_model_of_hugging_face(run, tmp_path):
    with ferry.open(run) as checkpoint:
        model = checkpoint.hf()
        tensors = model.load(framework="pt")
        report = ferry.save(tensors, tmp_path / "model", format="hf", like=model)
        assert report.warnings == []
    again = ferry.save(tensors, tmp_path / "model", format="hf", like=run, overwrite=True)
    assert again.warnings == [] and again.path == str(tmp_path / "model")
    ferry.convert(run, tmp_path / "converted")
    assert ferry.diff(tmp_path / "converted", tmp_path / "model")
    saved, converted = ferry.open(tmp_path / "model"), ferry.open(tmp_path / "converted")
    assert saved.hf().config == converted.hf().config
    transformers = pytest.importorskip("transformers")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tied = loaded.state_dict()
    name = next(iter(tensors))
    assert torch.equal(tied[name], tensors[name].to(tied[name].dtype))
    warnings = ferry.save({name: tensors[name], "more": torch.ones(1)}, tmp_path / "part",
                          format="hf", like=tmp_path / "model").warnings  # fmt: skip
    assert "lacks tensors" in warnings[0] and "unlike like=: more (1 in all)" in warnings[1]
    with pytest.raises(ferry.Mismatch, match=name):
        ferry.save({name: torch.ones(1)}, tmp_path / "bad", format="hf", like=run)
