"""The files of a checkpoint: whole or absent, refused where damaged, and a key that is its owner's alone."""

import contextlib
import json
import os
import resource
import shutil
import signal
import stat
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from private_checks import cross_entropy, network, plan, records

from tacit.core import Budget, InputError, TacitError, UnsupportedError
from tacit.core.randomness import Randomness
from tacit.ledger import Ledger
from tacit.training import Checkpoint, Execution, fit
from tacit.training.checkpoint import SCHEMA_VERSION, Saved, Store, read_state
from tacit.training.packing import pack, unpack

SAVED = Saved({"schema": SCHEMA_VERSION, "answer": 42}, {"x": torch.arange(5.0), "none": torch.zeros(0)})


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "checkpoint", keep=2)
    yield opened
    opened.close()


def states(store):
    return sorted(path.name for path in store.folder.glob("state-*"))


def test_a_state_comes_back_and_the_oldest_go(store):
    for step in (0, 3, 10):
        store.write(0, step, SAVED)
    assert states(store) == ["state-0000-000000003.safetensors", "state-0000-000000010.safetensors"]
    found = store.newest()
    assert found.header == SAVED.header
    assert all(torch.equal(found.tensors[name], SAVED.tensors[name]) for name in SAVED.tensors)


def test_a_later_stretch_is_newer_whatever_its_step(store):
    store.write(0, 9, SAVED)
    store.write(1, 3, Saved({"schema": SCHEMA_VERSION, "later": True}, {"x": torch.zeros(1)}))
    assert store.newest().header["later"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "pickle"])
def test_a_damaged_state_falls_back_to_the_one_before(store, damage):
    store.write(0, 1, SAVED)
    store.write(0, 2, Saved({"schema": SCHEMA_VERSION, "newest": True}, {"x": torch.ones(100)}))
    path = store.folder / "state-0000-000000002.safetensors"
    content = path.read_bytes()
    flipped = content[:-7] + bytes([content[-7] ^ 1]) + content[-6:]
    path.write_bytes({"cut": content[:-9], "flip": flipped, "empty": b"", "pickle": b"\x80\x04."}[damage])
    assert store.newest().header == SAVED.header
    with pytest.raises(InputError, match=r"^state-0000-000000002\.safetensors: is damaged or no checkpoint \("):
        read_state(path)


def test_all_states_damaged_is_an_error_and_not_a_new_run(store):
    store.write(0, 1, SAVED)
    for path in store.folder.glob("state-*"):
        path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"no state in it can be read\. state-.*stays counted\. Restore the folder"):
        store.newest()


@pytest.mark.parametrize("form", [SCHEMA_VERSION + 1, SCHEMA_VERSION - 1])
def test_another_form_is_refused(store, form):
    store.write(0, 1, Saved({"schema": form}, {"x": torch.zeros(1)}))
    with pytest.raises(InputError, match=rf"its form is version {form}, and this tacit knows {SCHEMA_VERSION}"):
        store.newest()


def test_a_half_written_file_is_cleared_away(store):
    store.close()
    (store.folder / "state-0000-000000004.safetensors.part").write_bytes(b"half")
    (store.folder / "key.part").write_text("half a key")
    again = Store(store.folder, keep=2)
    assert list(again.folder.glob("*.part")) == []
    again.close()
    store._lock = os.open("/dev/null", os.O_RDONLY)  # for the fixture to close


def test_one_process_at_a_time(store):
    with pytest.raises(InputError, match=r"checkpoint=.*: another process is using it\. Wait for it"):
        Store(store.folder, keep=2)


def test_the_key_is_its_owners_alone_and_is_destroyed(store):
    old = os.umask(0)
    try:
        store.write_key("run", 0, b"k" * 32)
    finally:
        os.umask(old)
    path = store.folder / "key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert store.read_key("run", 0) == b"k" * 32
    assert store.read_key("run", 1) is None
    assert store.read_key("other", 0) is None
    with path.open("rb") as held:  # the same blocks, though the name is gone
        store.destroy_key()
        assert not path.exists()
        assert set(held.read()) == {0}
    assert store.read_key("run", 0) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_key_that_others_may_read_is_refused(store, mode):
    store.write_key("run", 0, b"k" * 32)
    (store.folder / "key").chmod(mode)
    with pytest.raises(InputError, match=rf"key=.*others than you may read it \(mode {mode:04o}\).*chmod 600"):
        store.read_key("run", 0)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"schema": 1, "run": "run", "stretch": 0, "key": "zz"}', "\x00" * 90]
)
def test_a_damaged_key_is_no_key(store, content):
    store.write_key("run", 0, b"k" * 32)
    (store.folder / "key").write_text(content)
    assert store.read_key("run", 0) is None


def test_a_full_disk_is_refused_and_leaves_the_state_before(store):
    """A limit on the size of files stands for the end of the disk."""
    store.write(0, 1, SAVED)
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(InputError, match=r"cannot be written \(.*[Ff]ile too large.*Make room, then resume"):
            store.write(0, 2, Saved(SAVED.header, {"x": torch.zeros(5000)}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert states(store) == ["state-0000-000000001.safetensors"]
    assert list(store.folder.glob("*.part")) == []


def train(folder, account=None, seen=None, **options):
    model = network()
    return fit(
        model,
        cross_entropy,
        records(),
        plan(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        account=account,
        randomness=Randomness(unsafe_seed=1),
        execution=Execution(preflight=False),
        callbacks=[] if seen is None else [lambda step, _: seen.append(step)],
        checkpoint=Checkpoint(folder, every=2, **options),
    )


@pytest.fixture
def account(tmp_path):
    return Ledger.create(tmp_path / "ledger.db", dataset="d", budget=Budget(50.0, 1e-5)).account("d")


def test_a_folder_that_cannot_be_written_is_refused_before_any_spending(tmp_path, account):
    (tmp_path / "file").touch()
    seen = []
    with pytest.raises(InputError, match=r"checkpoint=.*: cannot be written \(Not a directory\)\. Choose a folder"):
        train(tmp_path / "file" / "checkpoint", account, seen)
    assert account.entries() == []
    assert seen == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_a_read_only_folder_is_refused_before_any_spending(tmp_path, account):
    folder = tmp_path / "checkpoint"
    folder.mkdir(mode=0o500)
    with pytest.raises(InputError, match=r"cannot be written \(Permission denied\)"):
        train(folder, account)
    assert account.entries() == []


def test_a_disk_that_is_full_from_the_start_spends_nothing(tmp_path, account):
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(InputError, match="cannot be written"):
            train(tmp_path / "checkpoint", account)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert account.entries() == []
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["lock"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that stopped at step 4 of 5, its files, and its ledger."""

    class StopError(Exception):
        pass

    def stop(step, _):
        if step == 4:
            raise StopError

    folder = tmp_path_factory.mktemp("stopped")
    account = Ledger.create(folder / "ledger.db", dataset="d", budget=Budget(50.0, 1e-5)).account("d")
    model = network()
    with pytest.raises(StopError):
        fit(
            model,
            cross_entropy,
            records(),
            plan(),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            account=account,
            randomness=Randomness(unsafe_seed=1),
            execution=Execution(preflight=False),
            callbacks=[stop],
            checkpoint=Checkpoint(folder / "checkpoint", every=3, keep=1),
        )
    (path,) = (folder / "checkpoint").glob("state-*")
    return Stopped((folder / "checkpoint", account, path.name, path.read_bytes()))


class Stopped(tuple):
    """Folder, account, name and content of the state; shown in few words where a test fails."""

    def __repr__(self):
        return "stopped"


def refused(stopped, content):
    """The run with this as its only state: refused with a message, nothing drawn, nothing spent."""
    folder, account, name, whole = stopped
    entries, seen = account.entries(), []
    for path in folder.glob("state-*"):
        path.unlink()
    (folder / name).write_bytes(content)
    try:
        with pytest.raises(TacitError) as error:
            train(folder, account, seen, resume=True)
    finally:
        (folder / name).write_bytes(whole)
    assert "\n" not in str(error.value)
    assert ". " in str(error.value)
    assert seen == []
    assert account.entries() == entries


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bytes_of_a_state_that_changed_are_refused(stopped, data):
    whole = stopped[3]
    place = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "insert", "random"]))
    changed = {
        "flip": whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :],
        "cut": whole[:place],
        "insert": whole[:place] + data.draw(st.binary(min_size=1, max_size=9)) + whole[place:],
        "random": data.draw(st.binary(max_size=200)),
    }[kind]
    if not same_content(stopped, changed):
        refused(stopped, changed)


def same_content(stopped, content):
    """Whether the change was in the blanks that fill up a header."""
    path = stopped[0].parent / "other.safetensors"
    path.write_bytes(content)
    try:
        return read_state(path).header == json.loads(json.dumps(original(stopped).header))
    except InputError:
        return False


def original(stopped):
    return read_state(stopped[0] / stopped[2])


def rewritten(whole: bytes, change, tmp_path: Path) -> bytes:
    """The state with another header and a digest that fits."""
    folder = tmp_path / "source"
    folder.mkdir(exist_ok=True)
    path = folder / "state-0000-000000000.safetensors"
    path.write_bytes(whole)
    saved = read_state(path)
    header = json.loads(json.dumps(saved.header))
    change(header)
    target = Store(tmp_path / "target", keep=1)
    target.write(9, 0, Saved(header, saved.tensors))
    target.close()
    return (tmp_path / "target" / "state-0009-000000000.safetensors").read_bytes()


FIELDS = ("run", "stretch", "first", "earlier", "dataset", "fingerprint", "state", "schema")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(FIELDS), value=JSON)
def test_headers_with_other_values_are_refused(stopped, tmp_path_factory, field, value):
    """Also where someone made the digest fit."""
    before = {}

    def change(header):
        before["value"] = header[field]
        header[field] = value

    content = rewritten(stopped[3], change, tmp_path_factory.mktemp("fuzz"))
    if before["value"] != value:
        refused(stopped, content)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("clean_record", value) for value in (-1, "4", True, 1.5)),
        *(("voids_guarantee", value) for value in (1, None, "no")),
        *(("step", value) for value in (-1, 99, None, "3")),
        *(("reservation", value) for value in (-1, 2, "1", [1])),
    ],
)
def test_numbers_that_cannot_be_are_refused(stopped, tmp_path, field, value):
    refused(stopped, rewritten(stopped[3], lambda header: header.update({field: value}), tmp_path))


@pytest.mark.parametrize("claim", [10**9, 2**40])
def test_a_header_that_claims_to_be_huge_is_refused(stopped, claim):
    refused(stopped, struct.pack("<Q", claim) + stopped[3][8:])


NESTED = b"[" * 100_000
CONTENTS = (
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.builds(
        lambda step, digest: f"{step} {digest}\n".encode(), st.integers(0, 10**30), st.text("0123abc ", max_size=40)
    )
    | st.sampled_from([b"", NESTED, b"9" * 5000 + b" " + b"0" * 32 + b"\n", b"\x80\x04.", bytes(300)])
)


def ends(stopped, tmp_path, name, change, uninterrupted):
    """A copy of the stopped run with one file changed goes on exactly, or is refused with nothing drawn or charged."""
    shutil.copytree(stopped[0].parent, tmp_path, dirs_exist_ok=True)
    folder, account = tmp_path / "checkpoint", Ledger.open(tmp_path / "ledger.db").account("d")
    path, before, seen = folder / name, account.entries(), []
    path.touch(mode=0o600)
    path.write_bytes(change(path.read_bytes()))
    refusal = ""
    try:
        result = train(folder, account, seen, resume=True)
    except TacitError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        assert ". " in refusal
        assert seen == []
        assert account.entries() == before
        return "refused"
    assert [entry.steps_charged for entry in account.entries()] == [plan().steps]
    for key, value in result.model.state_dict().items():
        assert torch.equal(value, uninterrupted[key])
    return "continued"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole")).model.state_dict()


STRANGERS = ("key.part", "state-0000-000000099.safetensors", "state-0000-000000004.safetensors.part", "sums-0001", "x")


def test_the_files_that_are_fuzzed_are_all_that_there_are(stopped):
    """A new kind of file has to be added here."""
    assert sorted(path.name for path in stopped[0].iterdir()) == ["key", "lock", stopped[2], "sums-0000"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_file_of_the_folder_may_hold_anything(stopped, tmp_path_factory, uninterrupted, data):
    name = data.draw(st.sampled_from(["key", "lock", "sums-0000", *STRANGERS]))
    content = data.draw(CONTENTS)

    def change(whole):
        kind = data.draw(st.sampled_from(["whole", "other", "flip", "cut", "added"]))
        place = data.draw(st.integers(0, max(0, len(whole) - 1)))
        flipped = bytes([whole[place] ^ data.draw(st.integers(1, 255))]) if whole else b""
        return {
            "whole": whole,
            "other": content,
            "flip": whole[:place] + flipped + whole[place + 1 :],
            "cut": whole[:place],
            "added": whole + content,
        }[kind]

    ends(stopped, tmp_path_factory.mktemp("fuzz"), name, change, uninterrupted)


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("key", lambda whole: whole, "continued"),
        ("key", lambda whole: b"", "refused"),
        ("key", lambda whole: NESTED, "refused"),
        ("key", lambda whole: json.dumps({**json.loads(whole), "key": "00" * 32}).encode(), "refused"),
        ("key", lambda whole: json.dumps({**json.loads(whole), "key": "00" * 31}).encode(), "refused"),
        ("sums-0000", lambda whole: b"", "continued"),
        ("sums-0000", lambda whole: whole[:-5], "continued"),
        ("sums-0000", lambda whole: b"3 " + b"0" * 32 + b"\n", "refused"),
        ("sums-0000", lambda whole: b"9" * 5000 + b" " + b"0" * 32 + b"\n" + whole, "continued"),
        ("lock", lambda whole: b"anything", "continued"),
        ("state-0000-000000099.safetensors", lambda whole: b"nothing", "continued"),
    ],
)
def test_what_each_change_ends_in(stopped, tmp_path, uninterrupted, name, change, expected):
    assert ends(stopped, tmp_path, name, change, uninterrupted) == expected


@pytest.mark.parametrize("name", ["key", "lock", "sums-0000", "state-0000-000000003.safetensors"])
def test_a_folder_in_the_place_of_a_file_is_refused(stopped, tmp_path, name):
    shutil.copytree(stopped[0].parent, tmp_path, dirs_exist_ok=True)
    path, account = tmp_path / "checkpoint" / name, Ledger.open(tmp_path / "ledger.db").account("d")
    path.unlink()
    path.mkdir()
    before = account.entries()
    with pytest.raises(InputError, match=r"checkpoint=.*\. "):
        train(tmp_path / "checkpoint", account, resume=True)
    assert account.entries() == before


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(torch.tensor([1.5, 2.5])),
        lambda inner: (
            st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        ),
        max_leaves=10,
    )
)
def test_states_come_back_with_their_types(value):
    tensors = {}
    packed = json.loads(json.dumps(pack("s", value, tensors), allow_nan=False))
    assert repr(unpack(packed, tensors)) == repr(value)


@given(JSON)
def test_what_was_not_packed_is_refused_or_plain(value):
    with contextlib.suppress(InputError):
        assert unpack(value, {}) == value or isinstance(value, dict)


def test_what_needs_a_pickle_is_refused():
    with pytest.raises(
        UnsupportedError, match=r"checkpoint: s\.f is a function, which cannot be saved without a pickle"
    ):
        pack("s", {"f": test_what_needs_a_pickle_is_refused}, {})
