"""What dropout draws in a private run is secret, whatever torch was seeded with: pitfalls 19 and 20, of known seeds."""

import contextlib
import threading

import pytest
import torch
from private_checks import cross_entropy, plan, records
from torch import nn

from tacit.core.errors import UnsupportedError
from tacit.core.randomness import Randomness
from tacit.ledger import Reservation
from tacit.training import Execution, Private, fit
from tacit.training.captured_step import CapturedStep, Prepared
from tacit.training.secret_draws import SecretDraws
from tacit.training.views import Augmented

PLAN = plan(steps=3)
EXECUTION = Execution(engine="reference", preflight=False)

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@contextlib.contextmanager
def secretly(key, device="cpu"):
    """Draws that have begun."""
    with SecretDraws(key, torch.device(device)) as draws:
        draws.begin()
        yield draws


def numbers(count, device):
    """As torch's own generator of this device draws them."""
    return torch.rand(count, dtype=torch.float64, device=device).tolist()


class Drawing(nn.Linear):
    """A layer that keeps what it drew in training, from the generators of its device and of the CPU."""

    def __init__(self, device):
        super().__init__(8, 4, dtype=torch.float64, device=device)
        self.drawn = []

    def forward(self, x):
        self.drawn += numbers(6, x.device) + numbers(2, "cpu")
        return super().forward(x)

    def private(self, randomness=None):
        return Private(self, cross_entropy, self.optimizer(), PLAN, randomness=randomness, execution=EXECUTION)

    def optimizer(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def in_a_loop(model, randomness):
    private = model.private(randomness)
    for lot in private.batches(records()):
        private.step(lot)


def by_fit(model, randomness):
    options = {"optimizer": model.optimizer(), "randomness": randomness, "execution": EXECUTION}
    fit(model, cross_entropy, records(), PLAN, **options)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=gpu)])
def device(request):
    return request.param


@pytest.fixture(params=[in_a_loop, by_fit])
def drawn(request, device):
    """What a run draws whose torch was seeded with 0."""

    def run(randomness=None):
        model = Drawing(device)
        torch.manual_seed(0)
        request.param(model, randomness)
        return model.drawn

    return run


def known(device):
    """What whoever knows the seed knows."""
    torch.manual_seed(0)
    return {*numbers(10_000, device), *numbers(10_000, "cpu")}


def test_a_seed_tells_nothing_of_what_is_drawn(drawn, device):
    one, two = drawn(), drawn()
    assert known(device).isdisjoint(one + two)
    assert set(one).isdisjoint(two)
    assert len(set(one)) == len(one)  # each step has a key of its own


def test_a_fixed_seed_of_the_run_decides_and_torchs_does_not(drawn, device):
    one, two = drawn(Randomness(unsafe_seed=3)), drawn(Randomness(unsafe_seed=3))
    assert one == two
    assert known(device).isdisjoint(one)
    assert drawn(Randomness(unsafe_seed=4)) != one


def test_torch_goes_on_from_where_it_stood(drawn, device):
    drawn()
    found = numbers(6, device), numbers(6, "cpu")
    torch.manual_seed(0)
    assert found == (numbers(6, device), numbers(6, "cpu"))


def test_runs_that_take_turns_do_not_open_each_other(device):
    models = Drawing(device), Drawing(device)
    torch.manual_seed(0)
    privates = [model.private() for model in models]
    loops = [private.batches(records()) for private in privates]
    for _ in range(PLAN.steps):
        for private, loop in zip(privates, loops, strict=True):
            private.step(next(loop))
    assert known(device).isdisjoint(models[0].drawn + models[1].drawn)


def test_torch_is_put_back_where_a_step_fails(device):
    model = Drawing(device)
    private = Private(model, failing, model.optimizer(), PLAN, execution=EXECUTION)
    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match="no loss"):
        private.step(next(private.batches(records())))
    found = numbers(6, device), numbers(6, "cpu")
    torch.manual_seed(0)
    assert found == (numbers(6, device), numbers(6, "cpu"))


def failing(model, x, y):
    model(x)
    raise RuntimeError("no loss")


def test_steps_of_other_threads_wait(device):
    """They share torch's generators: one that ended would put the seed back under the other."""
    entered = threading.Event()

    def other():
        with secretly(bytes(32), device):
            entered.set()

    with secretly(bytes(range(32)), device):
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.wait(0.2)
    thread.join(10)
    assert entered.is_set()


class Exhausting(Drawing):
    """A layer for which memory runs out once, after it has drawn."""

    left = 1

    def forward(self, x):
        out = super().forward(x)
        if self.left and len(self.drawn) > 8:
            self.left -= 1
            raise torch.OutOfMemoryError("no memory for so many")
        return out


def test_a_sum_in_smaller_chunks_draws_what_the_first_try_drew(device):
    model, undisturbed = Exhausting(device), Drawing(device)
    for each in (model, undisturbed):
        in_a_loop(each, Randomness(unsafe_seed=3))
    assert model.left == 0
    assert model.drawn[-len(undisturbed.drawn) :] == undisturbed.drawn
    assert model.drawn[:16] == undisturbed.drawn[:16]


class Setting(Drawing):
    """A layer during whose passes torch's generators are set, as by a compiler in another thread, some of the time."""

    def __init__(self, device, passes):
        super().__init__(device)
        self.left = passes

    def forward(self, x):
        if self.left:
            self.left -= 1
            torch.manual_seed(0)
        return super().forward(x)


@pytest.mark.parametrize("passes", [1, 3])
def test_a_sum_is_taken_again_where_torchs_generators_were_set_meanwhile(device, passes):
    model, undisturbed = Setting(device, passes), Drawing(device)
    undisturbed.load_state_dict(model.state_dict())
    for each in (model, undisturbed):
        in_a_loop(each, Randomness(unsafe_seed=3))
    assert not known(device).isdisjoint(model.drawn)
    assert known(device).isdisjoint(model.drawn[-len(undisturbed.drawn) :])
    assert model.drawn[-len(undisturbed.drawn) :] == undisturbed.drawn
    assert torch.equal(model.weight, undisturbed.weight)


def test_a_model_that_seeds_torch_in_every_pass_is_refused_before_any_noise(device):
    model = Setting(device, 10**6)
    private = model.private()
    with pytest.raises(UnsupportedError, match=r"seeded.*another thread.*fork_rng.*torch_generator"):
        private.step(next(private.batches(records())))
    assert private.steps_begun == 0


def test_a_model_that_puts_the_generators_back_is_none_of_these(device):
    class Forking(Drawing):
        def forward(self, x):
            with torch.random.fork_rng(["cuda"] if device == "cuda" else []):
                torch.manual_seed(0)
            return super().forward(x)

    model = Forking(device)
    in_a_loop(model, None)
    assert known(device).isdisjoint(model.drawn)


def test_what_a_compiler_puts_back_after_the_step_is_taken_away_in_the_next():
    """It saw the generators within a step: they would stand under that step's key, for whoever asks, for good."""
    model, seen = Drawing("cpu"), []
    model.register_forward_hook(lambda *_: seen.append(torch.get_rng_state()))
    private = model.private()
    torch.manual_seed(0)
    loop = private.batches(records())
    private.step(next(loop))
    torch.set_rng_state(seen[0])
    before = len(model.drawn)
    private.step(next(loop))
    assert set(model.drawn[:before]).isdisjoint(model.drawn[before:])
    found = numbers(6, "cpu")
    torch.manual_seed(0)
    assert found == numbers(6, "cpu")


def test_a_sum_within_a_sum_draws_under_its_own_key_and_the_outer_one_goes_on():
    one, two = bytes(32), bytes(range(32))
    with secretly(one):
        expected = numbers(6, "cpu")
    with secretly(one) as draws:
        found = numbers(2, "cpu")
        with secretly(two):
            assert set(numbers(6, "cpu")).isdisjoint(expected)
        assert draws.are_secret
        assert found + numbers(4, "cpu") == expected


def test_a_device_whose_generators_are_not_known_is_refused():
    with pytest.raises(UnsupportedError, match=r"device='meta'.*cannot be kept secret.*Train on 'cpu' or 'cuda'"):
        secretly(bytes(32), "meta").__enter__()


@gpu
def test_a_captured_graph_draws_what_the_key_decides():
    ones, graph = torch.ones(1000, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dropped = nn.functional.dropout(ones)

    def masks(key):
        with secretly(key, ones.device):
            graph.replay()
            return dropped.tolist()

    first, other, again = masks(bytes(32)), masks(bytes(range(32))), masks(bytes(32))
    assert first == again != other


class Launches:
    """Launches of steps on the CPU, without any noise, in place of graphs on a GPU; counts them."""

    def __init__(self, monkeypatch, model, on_launch=lambda: None, draws=True):
        self.count, self.seeds, self._model, self._on_launch = 0, [], model, on_launch
        monkeypatch.setattr(CapturedStep, "is_possible", property(lambda captured: captured._tried))
        monkeypatch.setattr(
            CapturedStep, "after_ordinary_step", lambda captured, sums: setattr(captured, "_tried", True)
        )
        monkeypatch.setattr(
            CapturedStep, "prepare", lambda captured, batch, mask: Prepared(self._launch, self._update, draws)
        )

    def _launch(self, key):
        self._on_launch()
        self.count += 1
        self.seeds.append(torch.initial_seed())
        self._model(torch.zeros(1, 8, dtype=torch.float64))

    def _update(self):
        self.seed_of_the_update = torch.initial_seed()


def varied(x, y):
    """A view that draws from torch's own generator."""
    VIEWS.extend(numbers(1, "cpu"))
    return x, y


VIEWS: list[float] = []


def launching(model, monkeypatch, *, augment=varied, **changes):
    """A run whose steps are launches from the second on."""
    VIEWS.clear()
    launches, private = Launches(monkeypatch, model, **changes), model.private()
    torch.manual_seed(0)
    for lot in private.batches(records() if augment is None else Augmented(records(), augment)):
        private.step(lot)
    return launches, private


def test_launches_draw_in_secret_and_their_updates_do_not(monkeypatch):
    model = Drawing("cpu")
    launches, private = launching(model, monkeypatch)
    assert launches.count == PLAN.steps - 1 == private.steps_begun - 1
    assert launches.seed_of_the_update == 0
    assert known("cpu").isdisjoint(model.drawn + VIEWS)


@pytest.mark.parametrize("augment", [None, varied])
@pytest.mark.parametrize("draws", [False, True])
def test_a_launch_that_draws_nothing_from_held_records_leaves_the_generators_alone(monkeypatch, augment, draws):
    launches, private = launching(Drawing("cpu"), monkeypatch, augment=augment, draws=draws)
    assert launches.count == PLAN.steps - 1 == private.steps_begun - 1
    assert len(set(launches.seeds)) == (PLAN.steps - 1 if draws or augment else 1)
    assert (set(launches.seeds) == {0}) == (not draws and augment is None)


def test_a_launch_whose_views_were_drawn_under_another_seed_does_not_happen(monkeypatch):
    def seeded_once(x, y):
        if len(VIEWS) == 1:
            torch.manual_seed(0)
        return varied(x, y)

    model = Drawing("cpu")
    launches, private = launching(model, monkeypatch, augment=seeded_once)
    assert launches.count == PLAN.steps - 2
    assert (private.steps_done, private.steps_begun) == (PLAN.steps, PLAN.steps)
    assert not known("cpu").isdisjoint(VIEWS[1:2])
    assert known("cpu").isdisjoint(model.drawn + VIEWS[2:])


def test_a_step_that_was_recorded_for_a_launch_is_recorded_once(monkeypatch):
    """The ledger's mark takes long enough for a compiler to set the generators."""
    mark = Reservation.before_noise

    def slow(reservation, step):
        mark(reservation, step)
        if step == 1:
            torch.manual_seed(0)

    monkeypatch.setattr(Reservation, "before_noise", slow)
    model = Drawing("cpu")
    launches, private = launching(model, monkeypatch)
    assert launches.count == PLAN.steps - 2
    assert private.steps_begun == PLAN.steps
    assert known("cpu").isdisjoint(model.drawn)


def test_generators_that_are_set_in_the_moment_of_a_launch_end_the_run(monkeypatch):
    model = Drawing("cpu")
    with pytest.raises(UnsupportedError, match="no secret of the run"):
        launching(model, monkeypatch, on_launch=lambda: torch.manual_seed(0))
