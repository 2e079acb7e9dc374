"""Languages whose kernels are installed as Jupyter has them: R, Java, and Python's own ipykernel."""

import json

import pytest
from conftest import PATIENCE, create
from e2b.exceptions import SandboxException, TimeoutException

# For each: an expression that reads the variable V, and what it becomes; the directory; output; an error; a cell without end; state.
LANGUAGES = {
    "r": (
        ("Sys.getenv('V', unset = 'none')", lambda v: "[1] " + json.dumps(v, ensure_ascii=False)),
        ("getwd()", '[1] "/home/user"'), ("cat('out\\n')", "out\n"), ("stop('no')", "ERROR"), "repeat Sys.sleep(0.1)",
        ("kept <- 5", "kept", "[1] 5"),
    ),
    "java": (
        ('System.getProperty("V", "none")', lambda v: v),
        ('System.getProperty("user.dir")', "/home/user"), ('System.out.println("out")', "out\n"), ("int x = 1 / 0;", "RuntimeException"),
        "while (true) Thread.sleep(100);", ("int kept = 5;", "kept", "5"),
    ),
    "python3": (
        ("print(__import__('os').environ.get('V', 'none'), end='')", lambda v: v),
        ("print(__import__('os').getcwd(), end='')", "/home/user"), ("print('out')", "out\n"), ("1/0", "ZeroDivisionError"),
        "while True: pass", ("kept = 5", "kept", "5"),
    ),
}


@pytest.fixture(scope="module")
def sandbox():
    with create(template="with-kernels", envs={"V": "of the sandbox"}) as s:
        yield s


def said(got):
    assert got.error is None, got.error
    return got.results[0].text if got.results else "".join(got.logs.stdout)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_kernel_of_jupyter(sandbox, language):
    (read, shown), (where, there), (out, printed), (fails, name), endless, (let, get, kept) = LANGUAGES[language]

    def run(code, **options):
        return sandbox.run_code(code, language=language, request_timeout=PATIENCE, **options)

    assert said(run(read)) == shown("of the sandbox")
    value = "'\"\\\n$(id) é"
    assert said(run(read, envs={"V": value})) == shown(value)
    assert said(run(read)) == shown("of the sandbox")
    assert said(run(where)) == there
    got = run(out)
    assert ("".join(got.logs.stdout), got.logs.stderr, got.error, got.results) == (printed, [], None, [])
    error = run(fails).error
    assert error.name == name and error.traceback and "\x1b" not in error.traceback
    run(let)
    with pytest.raises(TimeoutException):
        run(endless, timeout=2)
    assert said(run(get)) == kept
    # Its death, and that of what stands for it, is told; another follows.
    for victim in ("[c]onnection.json", "[e]ngine_jupyter.py", f"[h]ost.py {language}"):
        # All processes of the kernel go with it.
        sandbox.commands.run(f"pkill -9 -f '{victim}'; while pgrep -f '[c]onnection.json' >/dev/null; do sleep 0.05; done", timeout=PATIENCE)
        got = [run(get), run(get)]  # the first one may come before the death is known
        assert got[1].error and got[1].error.name != "ContextRestarting", got  # there is no variable any more
    context = sandbox.create_code_context(language=language, cwd="/tmp", request_timeout=PATIENCE)
    assert (context.language, context.cwd) == (language, "/tmp")
    assert said(sandbox.run_code(where, context=context)) == there.replace("/home/user", "/tmp")
    sandbox.remove_code_context(context)


def test_results_and_figures_of_r(sandbox):
    got = sandbox.run_code("plot(1:3)", language="r").results
    assert got[0].png.startswith("iVBOR") and not got[0].is_main_result
    table = sandbox.run_code("data.frame(n = c(1, 41))", language="r").results[0]
    assert "<table" in table.html and "41" in table.text


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_packages_of_npm(sandbox, language):
    context = sandbox.create_code_context(language=language, cwd="/tmp")
    assert said(sandbox.run_code("import ms from 'ms'; ms('2 days')", context=context)) == "172800000"
    assert said(sandbox.run_code("require('ms')('1s')", context=context)) == "1000"
    sandbox.remove_code_context(context)


def test_a_kernel_that_is_not_installed(sandbox):
    with pytest.raises(SandboxException, match='no kernel for the language "julia": there are python, .*kernel of Jupyter: java, python3, r$'):
        sandbox.run_code("1", language="julia")
    broken = {"argv": ["sh", "-c", "echo because >&2; exit 3"], "language": "broken", "display_name": "broken"}
    sandbox.files.write("/home/user/.local/share/jupyter/kernels/broken/kernel.json", json.dumps(broken))
    with pytest.raises(SandboxException, match="the kernel did not start: .*because"):
        sandbox.run_code("1", language="broken")
    sandbox.files.write("/home/user/.local/share/jupyter/kernels/torn/kernel.json", "{")
    with pytest.raises(SandboxException, match="the kernel did not start"):
        sandbox.run_code("1", language="torn")
