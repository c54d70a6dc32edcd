"""Where the installed files are, and how the program finds LibTorch: in the torch package of this Python."""
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

# The minor version of torch whose libraries the program was linked with.
TORCH = "@TORCH@"


class Failure(RuntimeError):
    """The program has ended with an error; `code` is its exit code, the text what it said."""

    def __init__(self, arguments, code, text):
        super().__init__(f"moonshard {' '.join(arguments)}: expected exit code 0, got {code}\n{text}".rstrip())
        self.code = code


def prefix():
    """The folder that has bin, lib and share/moonshard."""
    return Path(__file__).resolve().parent


def program(name="moonshard"):
    return prefix() / "bin" / name


def lua_cpath():
    """What LUA_CPATH must have for require "moonshard" in a plain luajit."""
    return str(prefix() / "lib" / "?.so")


def torch_libraries():
    """The folder of LibTorch. torch is looked for, not imported: that would take seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"moonshard: expected torch {TORCH} in {sys.executable}, got none; run: "
                          f"{Path(sys.executable).name} -m pip install 'torch=={TORCH}.*'")
    folder = Path(list(spec.submodule_search_locations)[0])
    version = next((line.split("'")[1] for line in (folder / "version.py").read_text().splitlines()
                    if line.startswith("__version__")), "of no version")
    if version.split(".")[:2] != TORCH.split("."):
        raise ImportError(f"moonshard: expected torch {TORCH}, whose libraries it was built with, got {version} in {folder}; "
                          f"run: {Path(sys.executable).name} -m pip install 'torch=={TORCH}.*'")
    return folder / "lib"


def environment():
    """This process's, with LibTorch's folder first where the loader looks for libraries."""
    variables = dict(os.environ)
    beside = prefix().parent / "torch" / "lib"  # found by the programs themselves
    libraries = torch_libraries()
    if libraries.resolve() != beside.resolve():
        known = variables.get("LD_LIBRARY_PATH", "")
        variables["LD_LIBRARY_PATH"] = f"{libraries}:{known}" if known else str(libraries)
    return variables


def become(name, arguments):
    """Replaces this process by the program; returns never."""
    try:
        variables = environment()
    except ImportError as error:
        sys.exit(str(error))
    os.execve(program(name), [str(program(name)), *arguments], variables)


def run(*arguments, echo=True):
    """Runs the program with these words and waits. Returns what it printed; with echo also as it comes.

    Raises Failure when it ends with another exit code than 0."""
    words = [str(word) for word in arguments]
    with subprocess.Popen([str(program()), *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as child:
        lines = []
        for line in child.stdout:
            lines.append(line)
            if echo:
                print(line, end="", flush=True)
    text = "".join(lines)
    if child.returncode != 0:
        raise Failure(words, child.returncode, "" if echo else text)
    return text
