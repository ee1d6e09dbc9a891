"""A user's script, for type checkers: SOURCE is a run, TARGET a folder to work in."""

import sys
from pathlib import Path

import ferry


def report(done: int, total: int) -> None:
    print(f"{done} of {total} bytes")


def main(source: str, target: Path) -> int:
    made: ferry.ConvertReport = ferry.convert(source, target / "hf", memory="1GiB", progress=report)
    print(made.family, made.written.bytes, made.to_dict()["tensors"])
    checked = ferry.verify(target / "hf")
    names: list[str] = [problem.what for problem in checked.problems]
    iterations: list[int | None] = [each.iteration for each in ferry.verify(source, run=True).iterations]
    print(names, iterations)
    with ferry.open(source) as checkpoint:
        shape: tuple[int, ...] = (0,)
        for name, tensor in checkpoint.items():
            shape = tensor.shape
            print(name, tensor.dtype, shape, tensor.nbytes)
        array: ferry.Array = checkpoint.get_tensor(next(iter(checkpoint)))
        print(array.nbytes, checkpoint.iteration, checkpoint.family, len(checkpoint.optimizer))
        for name, part in checkpoint.hf().stream(memory="64MiB", framework=None):
            print(name, part.shape)
    try:
        ferry.open(target / "nothing")
    except ferry.NotFound as error:
        print(error.kind, error.path, error.hint)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
