"""The noise kernel against its twin: in Triton's interpreter, in its compiler and where there is a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from box_muller import ENDS, exact_pair
from random123 import ANSWERS
from rfc8439 import VECTORS

from tacit.core import chacha, device_noise, philox
from tacit.core.device_noise import add_normal_, key_tensor
from tacit.core.errors import InputError
from tacit.core.noise_table import NoiseTable, fits
from tacit.core.row_sums import RowForm, RowSum

KEY = key_tensor(bytes(range(32)), device="cpu")
NONCE = chacha.nonce_for("weight")


def noise(count: int, dtype: torch.dtype) -> torch.Tensor:
    values = torch.zeros(count, dtype=dtype)
    add_normal_(values, 1.0, KEY, NONCE)
    return values


def kernel_words() -> np.ndarray:
    """128 triples: every pair of ends as a radius, and the rest at random."""
    random_words = np.random.default_rng(3).integers(0, 2**32, (3, 128), dtype=np.uint32)
    ends = np.array(ENDS, dtype=np.uint32)
    random_words[0, :36] = np.tile(ends, 3)
    random_words[1, :36] = np.repeat(ends[[0, 3, -1]], 12)
    random_words[2, 30:66] = np.tile(ends, 3)
    return random_words


def run_script(name: str, *arguments: str, cache: Path, interpret: str) -> None:
    """Triton decides when it is imported whether it interprets: each kind takes a process of its own."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "TRITON_CACHE_DIR": str(cache)}
    command = [sys.executable, str(Path(__file__).with_name(name)), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    folder = tmp_path_factory.mktemp("interpreted")
    np.save(folder / "words.npy", kernel_words())
    files = (str(folder / "words.npy"), str(folder / "out.npz"))
    run_script("interpreted_noise.py", *files, cache=folder, interpret="1")
    return dict(np.load(folder / "out.npz"))


def test_the_kernel_gives_the_published_vectors(interpreted: dict[str, np.ndarray]) -> None:
    given_blocks = [words.astype("<u4").tobytes().hex() for words in interpreted["vectors"]]
    assert given_blocks == [vector.block for vector in VECTORS]


def test_the_kernel_gives_the_published_answers_of_philox(interpreted: dict[str, np.ndarray]) -> None:
    assert interpreted["fast_vectors"].tolist() == [list(answer.words * 4) for answer in ANSWERS]


def interpreted_constants() -> tuple[chacha.Words, chacha.Nonce, float, int]:
    pytest.importorskip("triton")
    import interpreted_noise

    key = chacha.key_words(interpreted_noise.KEY)
    return key, interpreted_noise.NONCE, interpreted_noise.SCALE, interpreted_noise.COUNT


def test_the_kernel_numbers_blocks_up_to_the_last_counter(interpreted: dict[str, np.ndarray]) -> None:
    key, nonce, _, _ = interpreted_constants()
    np.testing.assert_array_equal(interpreted["last"], chacha.keystream(key, nonce, 2**32 - 130, 130))


def test_the_kernel_gives_the_twins_words_of_philox_up_to_the_last_counter(interpreted: dict[str, np.ndarray]) -> None:
    key, nonce, _, _ = interpreted_constants()
    twin = np.empty(130 * 64, dtype=np.uint8)
    philox.write_keystream(twin, key, nonce, 2**32 - 130)
    np.testing.assert_array_equal(interpreted["fast_last"], twin.view("<u4").reshape(130, 16).T)


def test_the_kernels_normals_are_right_to_float32_everywhere(interpreted: dict[str, np.ndarray]) -> None:
    exact = [exact_pair(*(int(word) for word in triple), 32) for triple in kernel_words().T]
    np.testing.assert_allclose(interpreted["normals"].T, exact, rtol=8e-7)


@pytest.mark.parametrize(("case", "fast"), [("float32", False), ("fast_float32", True)])
def test_the_kernel_adds_the_twins_noise_and_touches_nothing_else(
    interpreted: dict[str, np.ndarray], case: str, fast: bool
) -> None:
    key, nonce, scale, count = interpreted_constants()
    twin = torch.full((count,), 3.0)
    add_normal_(twin, scale, torch.from_numpy(key.view(np.int32)), nonce, fast=fast)
    np.testing.assert_allclose(interpreted[case][:count], twin.numpy(), rtol=0, atol=1e-6)
    assert (interpreted[case][count:] == 3).all()


@pytest.mark.parametrize(("case", "fast"), [("many", False), ("fast_many", True)])
def test_one_launch_gives_many_tensors_their_own_noise_and_divides(
    interpreted: dict[str, np.ndarray], case: str, fast: bool
) -> None:
    key, _, scale, _ = interpreted_constants()
    import interpreted_noise

    expected = []
    for size, nonce in interpreted_noise.MANY.items():
        twin = torch.full((size + interpreted_noise.GUARD,), 3.0)
        add_normal_(twin[:size], scale, torch.from_numpy(key.view(np.int32)), nonce, fast=fast)
        twin[:size] /= interpreted_noise.DIVISOR
        expected.append(twin)
    np.testing.assert_allclose(interpreted[case], torch.cat(expected).numpy(), rtol=0, atol=1e-6)


def test_a_launch_that_descends_takes_the_step_of_plain_descent(interpreted: dict[str, np.ndarray]) -> None:
    pytest.importorskip("triton")
    from interpreted_noise import GUARD, MANY, RATES

    means = [part[:-GUARD] for part in np.split(interpreted["many"], np.cumsum([size + GUARD for size in MANY])[:-1])]
    left = [np.append(5 - rate * mean, np.full(GUARD, 5.0)) for rate, mean in zip(RATES, means, strict=True)]
    np.testing.assert_allclose(interpreted["descended"], np.concatenate([*means, *left]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("case", "dtype", "fast"),
    [("taken_bfloat16", torch.bfloat16, False), ("taken_fast", torch.float32, True)],
)
def test_a_launch_takes_open_sums_before_it_adds_their_noise(
    interpreted: dict[str, np.ndarray], case: str, dtype: torch.dtype, fast: bool
) -> None:
    """The same as the sum, taken in float64 and rounded, and then the noise; what is not kept adds nothing."""
    key, _, scale, _ = interpreted_constants()
    import interpreted_noise as given

    means, moved = [], []
    for (size, nonce), each, rate in zip(given.MANY.items(), given.open_sums(dtype), given.RATES, strict=True):
        mean = torch.full((size,), 3.0)
        if each is not None:
            mean = (each.rows[each.keep].double() * each.weights[each.keep, None].double()).sum(0).float()
        add_normal_(mean, scale, torch.from_numpy(key.view(np.int32)), nonce, fast=fast)
        means.append(mean / given.DIVISOR)
        moved.append(5 - rate * means[-1])
    np.testing.assert_allclose(interpreted[case], torch.cat([*means, *moved]).numpy(), rtol=0, atol=1e-6)


def test_a_launch_that_was_not_told_of_open_sums_reads_nothing_in_their_places(
    interpreted: dict[str, np.ndarray],
) -> None:
    """What lies there may be anything, such as a sum of an earlier step without its noise."""
    assert interpreted["nothing_taken"].tolist() == [3.0] * 3 + [0.0] * (1700 + 1280)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("size", [100_001, 100_006, 100_008])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_a_launch_takes_open_sums(dtype: torch.dtype, size: int) -> None:
    nonces = chacha.nonces_for(["first", "second"])
    rows = torch.randn(16, size, device="cuda").to(dtype)
    weights, keep = torch.rand(16, device="cuda"), torch.arange(16, device="cuda") != 3
    rows[3] = float("nan")
    total, other = torch.full((size,), float("nan"), device="cuda"), torch.ones(7, device="cuda")
    table = NoiseTable([total, other], list(nonces.values()))
    each = RowSum(rows, weights, keep, total)
    table.point_to([total, other], None, [each, None])
    table.add_(2.0, 4.0, KEY.cuda(), RowForm.of([each]))
    sums = [(rows[keep].double().T @ weights[keep].double()).float().cpu(), torch.ones(7)]
    for value, twin, nonce in zip((total, other), sums, nonces.values(), strict=True):
        add_normal_(twin, 2.0, KEY, nonce)
        torch.testing.assert_close(value.cpu(), twin / 4.0, rtol=2e-6, atol=2e-6)


def test_rows_of_another_size_or_layout_are_refused() -> None:
    pytest.importorskip("triton")
    total, rows, weights, flags = torch.zeros(4), torch.zeros(2, 4), torch.ones(2), torch.ones(2, dtype=torch.bool)
    table = NoiseTable([total], [NONCE])
    table.point_to([total], None, [RowSum(rows, weights, flags, total)])
    for wrong in (
        (torch.zeros(2, 5), weights, flags),
        (torch.zeros(2, 8)[:, ::2], weights, flags),
        (rows, torch.ones(3), flags),
        (rows, torch.ones(4)[::2], flags),
        (rows, weights.double(), flags),
        (rows, weights, flags.repeat(2)[::2]),
        (rows, weights, flags.int()),
    ):
        with pytest.raises(InputError, match="Take the sum before"):
            table.point_to([total], None, [RowSum(*wrong, total)])


def test_the_kernel_adds_to_sixteen_bits_in_float32(interpreted: dict[str, np.ndarray]) -> None:
    """To one unit in the last place: the interpreter cuts off where a GPU rounds."""
    key, nonce, scale, _ = interpreted_constants()
    twin = torch.full((200,), 3.0, dtype=torch.bfloat16)
    add_normal_(twin, scale, torch.from_numpy(key.view(np.int32)), nonce)
    held = torch.from_numpy(interpreted["bfloat16"])
    torch.testing.assert_close(held, twin.float(), rtol=torch.finfo(torch.bfloat16).eps, atol=0)


def test_the_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    run_script("compiled_noise.py", str(tmp_path / "ptx.json"), cache=tmp_path, interpret="0")
    assembly = json.loads((tmp_path / "ptx.json").read_text())
    assert len(assembly) == 9
    assert all(("bar.sync" in text) == ("rows" in case) for case, text in assembly.items())  # sums, then their readers
    for case, text in assembly.items():
        assert ("shf.l.wrap" in text) != ("fast" in case), case  # rotations became one instruction, and Philox has none
        assert "bf16" not in case or "cvt.rn.bf16" in text, case  # rounded to nearest


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("fast", [False, True])
def test_on_a_gpu_the_kernel_adds_the_twins_noise(fast: bool) -> None:
    values, twin = torch.zeros(100_001, device="cuda"), torch.zeros(100_001)
    add_normal_(values, 1.0, KEY.cuda(), NONCE, fast=fast)
    add_normal_(twin, 1.0, KEY, NONCE, fast=fast)
    torch.testing.assert_close(values.cpu(), twin, rtol=2e-6, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("fast", [False, True])
def test_on_a_gpu_one_launch_serves_many_tensors(fast: bool) -> None:
    nonces = chacha.nonces_for(["first", "second"])
    sums = [torch.ones(100_001, device="cuda"), torch.ones(7, device="cuda")]
    table = NoiseTable(sums, list(nonces.values()), fast=fast)
    table.point_to(sums)
    table.add_(2.0, 4.0, KEY.cuda())
    for values, nonce in zip(sums, nonces.values(), strict=True):
        twin = torch.ones(values.shape)
        add_normal_(twin, 2.0, KEY, nonce, fast=fast)
        torch.testing.assert_close(values.cpu(), twin / 4.0, rtol=2e-6, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_without_the_kernel_gets_the_same_noise(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_noise, "_has_triton", lambda: False)
    values = torch.zeros(5000, device="cuda", dtype=dtype)
    add_normal_(values, 1.0, KEY.cuda(), NONCE)
    assert torch.equal(values.cpu(), noise(5000, dtype))


def test_what_a_table_points_to_is_another_object_whenever_it_changes() -> None:
    pytest.importorskip("triton")
    first, second, parameter = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    table = NoiseTable([first], [NONCE])
    assert table.pointing is None
    seen: list[object] = []
    for tensors, descent in (
        ([first], None),
        ([second], None),
        ([first], [(parameter, 0.1)]),
        ([first], [(parameter, 0.2)]),
        ([first], [(second, 0.2)]),
        ([first], None),
    ):
        table.point_to(tensors, descent)
        pointing = table.pointing
        table.point_to(tensors, descent)
        assert table.pointing is pointing
        assert not any(pointing is other for other in seen)
        seen.append(pointing)


def test_a_table_that_was_interrupted_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would point elsewhere than it says, and the next sums would get no noise."""
    pytest.importorskip("triton")
    first, second = torch.zeros(4), torch.zeros(4)
    table = NoiseTable([first], [NONCE])
    table.point_to([first])
    rows = table._table.clone()

    class Interrupted:
        def copy_(self, values: torch.Tensor) -> None:
            rows.copy_(values)
            raise KeyboardInterrupt

    monkeypatch.setattr(table, "_table", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        table.point_to([second])
    monkeypatch.setattr(table, "_table", rows)
    table.point_to([first])
    assert int(rows[0, 0]) == first.data_ptr()


def test_a_table_refuses_tensors_of_other_sizes() -> None:
    pytest.importorskip("triton")
    table = NoiseTable([torch.zeros(4)], [NONCE])
    for other in (torch.zeros(5), torch.zeros(4, dtype=torch.float64), torch.zeros(2, 8)[:, ::4]):
        with pytest.raises(InputError, match="another"):
            table.point_to([other])
        with pytest.raises(InputError, match="another"):
            table.point_to([torch.zeros(4)], [(other, 0.1)])


def test_tensors_on_a_cpu_take_no_launch() -> None:
    assert not fits([torch.zeros(4)])
