"""Which requirements install_packages accepts, and what it tells of an installation."""

import os
import stat
import sys

import pytest
from colab_relay.install import child, failures, requirements
from colab_relay.install.run import MIME, InstallFailed, command, install

ACCEPTED = {
    "pandas>=2,<3 rich": ["pandas>=2,<3", "rich"],
    "pandas >= 2, < 3, rich": ["pandas >= 2, < 3", "rich"],
    "a, b\nc": ["a", "b", "c"],
    "scikit-learn[examples, tests]==1.7.*": ["scikit-learn[examples, tests]==1.7.*"],
    "'torch~=2.1' \"x!=1.0+cu118\"": ["torch~=2.1", "x!=1.0+cu118"],
    "a ; python_version < '3.12' and sys_platform == \"linux\"": [
        "a ; python_version < '3.12' and sys_platform == \"linux\""
    ],
    "x @ https://host/x-1.0.whl#sha256=ab y": ["x @ https://host/x-1.0.whl#sha256=ab", "y"],
    "x @ git+https://host/x.git@v1.0": ["x @ git+https://host/x.git@v1.0"],
}
REFUSED = (
    "-r x.txt|--index-url=http://x beta|beta --pre|./beta|../x|/tmp/x.whl|x.whl/y|beta; rm -rf /|"
    "$(touch x)|`x`|a|b|pip install beta|!pip install -q x|python -m pip install x|uv add x|"
    "uv pip install x|%pip install x|conda install x|file:///x|beta @ file:///x|http://x/y.whl|"
    "https://x/y.whl|beta @ http://x/y|beta @ git+ssh://x/y|beta @ ../y|a==|a[|é|a\\b|a\x00|"
    "beta @ git+https://x/y@--upload-pack=z|['a', 'b']|a=1"
).replace("a|b|", "a && b|")


def test_requirements():
    for text, want in ACCEPTED.items():
        assert requirements.split(text) == want, text
    for text in REFUSED.split("|"):
        with pytest.raises(requirements.Refused):
            pytest.fail("%r gives %r" % (text, requirements.split(text)))
    with pytest.raises(requirements.Refused):
        requirements.split("a " * 501)


def test_a_file_of_requirements(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("\ufeff# all\npandas>=2  # new\n\nrich ; python_version > '3'\r\n", "utf-8")
    assert requirements.read(str(path)) == ["pandas>=2", "rich ; python_version > '3'"]
    for line in ("-r other", "--pre", "x --hash=sha256:ab", "-e .", "./x", "a \\", "x" * 70_000):
        path.write_text("ok\n" + line)
        with pytest.raises(requirements.Refused):
            requirements.read(str(path))
    os.mkfifo(str(tmp_path / "pipe"))
    for other in ("pipe", ".", "missing", "a\0b"):
        with pytest.raises(requirements.Refused):
            requirements.read(str(tmp_path / other))


def test_no_argument_is_an_option(monkeypatch):
    for uv in ("/x/uv", None):
        monkeypatch.setattr("colab_relay.install.run.find_uv", lambda uv=uv: uv)
        name, argv = command(["a>=1", "b"], True)
        assert name == ("uv" if uv else "pip") and argv[-3:] == ["--upgrade", "a>=1", "b"]
        assert sys.executable in argv


PROGRAM = """import sys
print("\\x1b[32mCollecting\\x1b[0m x")
for n in (0, 500000, 1000000): print("Progress %d of 1000000" % n)
print("naïve", file=sys.stderr)
sys.stdout.write("end without a line break")
sys.exit(3)
"""


def test_lines_are_shown_as_they_come(capfd):
    code, last = child.run([sys.executable, "-c", PROGRAM])
    assert code == 3
    assert "Collecting x" in last and "naïve" in last and "end without a line break" in last
    assert not any("Progress" in line for line in last)
    assert "\r0.5 of 1.0 MB\r1.0 of 1.0 MB\n" in capfd.readouterr().out


def test_a_flood_of_output_is_bounded(capfd):
    code, last = child.run([sys.executable, "-c", "print('x' * 10_000_000)\nprint('y\\n' * 50)"])
    assert code == 0 and len(last) == child.MAX_LAST_LINES
    assert all(len(line) <= child.MAX_LINE for line in last)


def fake_uv(folder, monkeypatch, script):
    path = folder / "uv"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder) + os.pathsep + os.environ["PATH"])


def make(folder, name, version):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "__init__.py").write_text("")
    info = folder / ("%s-%s.dist-info" % (name, version))
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)
    )
    (info / "RECORD").write_text("%s/__init__.py,,\n%s/METADATA,,\n" % (name, info.name))
    return info


def test_what_changed_is_displayed(shell, tmp_path, monkeypatch, capfd):
    site = tmp_path / "site"
    site.mkdir()
    for name in ("used_one", "unused"):
        make(site, name, "1.0")
    monkeypatch.syspath_prepend(str(site))
    __import__("used_one")
    make(site, "used_one", "2.0").rename(tmp_path / "used_one-2.0.dist-info")
    make(site, "unused", "2.0").rename(tmp_path / "unused-2.0.dist-info")
    moves = ["mv %s/%s-2.0.dist-info %s && rm -r %s/%s-1.0.dist-info" % (tmp_path, n, site, site, n)
             for n in ("used_one", "unused")]  # fmt: skip
    fake_uv(tmp_path, monkeypatch, "\n".join(moves))
    make(site, "Kept.One", "3.0")
    install("used-one unused kept_one>=1 absent", "", True)
    (report,) = shell.displayed(MIME)
    assert report["installed"] == [
        {"name": "unused", "old": "1.0", "new": "2.0"},
        {"name": "used-one", "old": "1.0", "new": "2.0"},
    ]
    assert report["restart_needed"] == ["used-one"] and report["installer"] == "uv"
    assert report["unchanged"] == [{"name": "kept-one", "old": "3.0", "new": "3.0"}]
    assert "until the kernel restarts: used-one" in capfd.readouterr().out
    sys.modules.pop("used_one")


FAILURES = {
    "ERROR: No matching distribution found for x": "no_version",
    "Because only x<=1 is available and you require x>2": "no_version",
    "ERROR: ResolutionImpossible: for help": "conflict",
    "WARNING: Retrying: NewConnectionError: Failed to establish a new connection": "no_network",
    "error: Failed to fetch: `https://pypi.org/simple/x/`": "no_network",
    "OSError: [Errno 28] No space left on device": "disk_full",
    "error: externally-managed-environment": "managed",
    "error: subprocess-exited-with-error": "build",
    "ERROR: Could not install: [Errno 13] Permission denied: '/usr'": "permission",
    "something else": "failed",
}


def test_failures_have_a_next_step(shell, tmp_path, monkeypatch):
    for lines, want in FAILURES.items():
        kind, hint = failures.kind_of(lines.split("\n"))
        assert kind == want and hint.endswith("."), lines
    fake_uv(tmp_path, monkeypatch, "echo No matching distribution found for x; exit 4")
    with pytest.raises(InstallFailed, match="uv ended with code 4"):
        install("x", "", False)
    report = shell.displayed(MIME)[-1]
    assert report["kind"] == "no_version" and report["installed"] == []
    with pytest.raises(InstallFailed, match="packages is empty"):
        install("", "", False)
    assert shell.displayed(MIME)[-1]["kind"] == "bad_request"


DECISIVE = {
    "Collecting beta\nINFO: pip is looking at multiple versions of beta\n"
    "ERROR: Cannot install alpha==2.0 and beta because these conflict.\n\n"
    "The conflict is caused by:\n    The user requested alpha==2.0\n"
    "    beta 1.0 depends on alpha<2\n\nTo fix this you could try to:\n"
    "1. loosen the range of package versions you've specified\n"
    "2. remove package versions to allow pip to attempt to solve the dependency conflict\n\n"
    "ERROR: ResolutionImpossible: for help": [
        "ERROR: Cannot install alpha==2.0 and beta because these conflict.",
        "The conflict is caused by:",
        "    The user requested alpha==2.0",
        "    beta 1.0 depends on alpha<2",
        "ERROR: ResolutionImpossible: for help",
    ],
    "Using Python 3.12\n  × No solution found when resolving dependencies:\n  ╰─▶ Because x": [
        "  × No solution found when resolving dependencies:",
        "  ╰─▶ Because x",
    ],
    "Resolved 3 packages in 1ms\nDownloading x": ["Resolved 3 packages in 1ms", "Downloading x"],
}


def test_only_the_lines_that_say_why_are_in_the_message():
    for text, want in DECISIVE.items():
        assert failures.decisive(text.split("\n")) == want, text
    many = failures.decisive(["error: a"] + ["%d" % n + "x" * 2000 for n in range(100)])
    assert len(many) == failures.MAX_DECISIVE and many[0] == "error: a"
    assert many[-1].startswith("99x") and len(many[-1]) == failures.MAX_LINE


def test_names_of_requirements():
    for text in ("a", "a>=1", "a [x]", "a @ https://host/b", "a;python_version>'3'", "a==1,<2"):
        assert requirements.name(text) == "a"
    assert requirements.name("Scikit_Learn.x-2 >1") == "Scikit_Learn.x-2"
