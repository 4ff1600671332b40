"""The package in a kernel: found by its hash, and sent again if it is missing."""

import json
import sys
import threading

import pytest
from colab_relay import call

ONE, OTHER = "colab_relay_1111111111111111", "colab_relay_2222222222222222"
MIME, MISSING = "application/x-answer", "application/vnd.colab-relay.missing+json"


@pytest.fixture(autouse=True)
def forget():
    yield
    purge()


def purge():
    for name in list(sys.modules):
        if name.startswith((ONE, OTHER)):
            del sys.modules[name]


def ask(package, sources, function="registry.runs", arguments=()):
    answer = call.run([package, function, MIME, "reply"], json.dumps(arguments), sources)
    return answer._repr_mimebundle_()


def is_missing(package):
    answer = ask(package, {})
    assert answer in ({MIME: {}}, {MISSING: {"package": package}})
    return MISSING in answer


def test_a_kernel_without_the_package_only_reports_that():
    before = set(sys.modules)
    assert is_missing(ONE)
    assert set(sys.modules) == before


def replace(module):
    sys.modules[ONE] = module


@pytest.mark.parametrize(
    "harm",
    [
        purge,
        lambda: sys.modules.pop(ONE),
        lambda: sys.modules.pop(ONE + ".registry"),
        lambda: sys.modules.__setitem__(ONE + ".safe", sys),
        lambda: replace(None),
        lambda: replace(sys),
        lambda: replace(type(sys)(ONE)),
        lambda: replace(pytest.importorskip("unittest.mock").MagicMock()),
        lambda: vars(sys.modules[ONE]).clear(),
    ],
    ids="purge root one swapped none other empty mock cleared".split(),
)
def test_harm_makes_it_missing_until_it_is_sent_again(sources, harm):
    ask(ONE, sources)
    harm()
    assert is_missing(ONE)
    assert ask(ONE, sources) == {MIME: {}}
    assert not is_missing(ONE)


def test_two_releases_share_the_registry_and_nothing_else(sources):
    ask(ONE, sources)
    ask(OTHER, dict(sources, **{"__init__.py": "release = 2"}))
    assert not is_missing(ONE) and not is_missing(OTHER)
    one, other = sys.modules[ONE + ".registry"], sys.modules[OTHER + ".registry"]
    assert one is not other
    try:
        one.entry_of("run", 3)["setup"] = "hash"
        assert other.runs() == {"run": {"setup": "hash", "done": 3}}
    finally:
        del sys.modules["colab_relay_runs"]


def test_a_package_of_the_users_with_its_name_is_not_used(sources, tmp_path, monkeypatch):
    """Neither shadows the other, whichever was imported first."""
    (tmp_path / "colab_relay").mkdir()
    (tmp_path / "colab_relay" / "__init__.py").write_text("mine = 7")
    (tmp_path / "colab_relay" / "registry.py").write_text("1 / 0")
    for name in [n for n in sys.modules if n.partition(".")[0] == "colab_relay"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert ask(ONE, sources) == {MIME: {}}
    import colab_relay

    assert colab_relay.mine == 7
    assert not is_missing(ONE)


@pytest.fixture
def frequent_switches():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_threads_that_install_at_once_all_get_an_answer(sources, frequent_switches):
    threads, rounds, answers = 8, 5, []
    barrier = threading.Barrier(threads)

    def work():
        barrier.wait()
        for _ in range(3):
            answers.append(ask(ONE, sources))

    for _ in range(rounds):
        purge()
        running = [threading.Thread(target=work) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert answers == [{MIME: {}}] * (threads * rounds * 3)
    assert not is_missing(ONE)
