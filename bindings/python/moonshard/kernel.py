"""moonshard in Jupyter: a kernel on ipykernel's base class that drives `moonshard repl --json` as its child.

`moonshard kernel install --user` makes it known to Jupyter; docs/notebook.md describes it."""
import base64
import codecs
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

try:
    from ipykernel.kernelapp import IPKernelApp
    from ipykernel.kernelbase import Kernel
except ImportError:
    sys.exit(f"moonshard kernel: expected the package ipykernel, got none; {sys.executable} -m pip install ipykernel, "
             "or set MOONSHARD_PYTHON to a Python that has it")

# A picture of a figure is far smaller; a larger file is named only.
MOST_IMAGE_BYTES = 32 << 20


def program():
    """The moonshard program, and the variables to start it with."""
    named = os.environ.get("MOONSHARD_PROGRAM")
    if named:
        return named, dict(os.environ)
    try:
        from moonshard import launch  # of the wheel: knows where LibTorch is
        return str(launch.program()), launch.environment()
    except ImportError:
        pass
    found = shutil.which("moonshard")
    if not found:
        raise FileNotFoundError("moonshard kernel: expected the program moonshard on the path, got none; set MOONSHARD_PROGRAM")
    return found, dict(os.environ)


class Session:
    """The child: one request at a time, streams as they come."""

    def __init__(self, on_error_text):
        command, variables = program()
        # A session of its own: the kernel passes exactly one SIGINT on, however Jupyter sends its own.
        self.child = subprocess.Popen([command, "repl", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env=variables, start_new_session=True)
        self.number = 0
        self.on_error_text = on_error_text
        self.reader = threading.Thread(target=self._pass_errors_on, daemon=True)
        self.reader.start()
        hello = self._next() or {}
        self.banner = hello.get("banner", "moonshard")
        if not hello.get("ready"):
            raise RuntimeError(hello.get("error", {}).get("message", "moonshard repl --json ended at once"))

    def _pass_errors_on(self):
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while True:
            data = self.child.stderr.read1(65536)
            if not data:
                return
            self.on_error_text(decode(data))

    def _next(self):
        line = self.child.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, on_text=None, **request):
        """The answer to a request; None when the program is gone. Ctrl-C goes to the child, whose answer is waited for."""
        self.number += 1
        try:
            self.child.stdin.write(json.dumps({"id": self.number, **request}).encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            return None
        while True:
            try:
                answer = self._next()
            except KeyboardInterrupt:
                self.interrupt()
                continue
            if answer is None or "stream" not in answer:
                return answer
            if on_text:
                on_text(answer["text"])

    def interrupt(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)

    def close(self):
        if self.child.poll() is None:
            self.child.stdin.close()
            try:
                self.child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.child.kill()
        return self.child.wait()


def image_bundle(image):
    """A picture as Jupyter's data by type; None where it cannot be read."""
    path = Path(image["path"])
    try:
        if path.stat().st_size > MOST_IMAGE_BYTES:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    content = data.decode("utf-8", "replace") if image["mime"] == "image/svg+xml" else base64.b64encode(data).decode()
    return {image["mime"]: content, "text/plain": str(path)}


class MoonshardKernel(Kernel):
    implementation = "moonshard"
    implementation_version = "@VERSION@"
    language = "lua"
    language_version = "5.1"
    language_info = {"name": "lua", "mimetype": "text/x-lua", "file_extension": ".lua", "pygments_lexer": "lua", "codemirror_mode": "lua"}
    banner = "moonshard"

    def __init__(self, **options):
        super().__init__(**options)
        self.session_of_lua = None

    @property
    def lua(self):
        if self.session_of_lua is None:
            self.session_of_lua = Session(lambda text: self.stream("stderr", text))
            self.banner = self.session_of_lua.banner
        return self.session_of_lua

    def stream(self, name, text):
        self.send_response(self.iopub_socket, "stream", {"name": name, "text": text})

    def failure(self, name, message, traceback):
        content = {"ename": name, "evalue": message, "traceback": traceback or [message]}
        self.send_response(self.iopub_socket, "error", content)
        return {"status": "error", "execution_count": self.execution_count, **content}

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False, **_):
        if not code.strip():
            return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
        on_text = None if silent else lambda text: self.stream("stdout", text)
        try:
            answer = self.lua.ask(on_text, code=code)
        except (OSError, RuntimeError) as error:
            return self.failure("StartError", str(error), None)
        if answer is None:
            ended = self.session_of_lua.close()
            self.session_of_lua = None
            return self.failure("ProgramEnded", f"moonshard ended with exit code {ended}; the next cell starts it anew, without the values", None)
        if not silent:
            self.show(answer)
        if answer["status"] in ("error", "interrupted"):
            error = answer.get("error", {})
            if answer["status"] == "interrupted":
                return self.failure("KeyboardInterrupt", "interrupted", error.get("traceback"))
            return self.failure("LuaError", error.get("message", ""), error.get("traceback"))
        payload = [{"source": "ask_exit", "keepkernel": False}] if answer["status"] == "exit" else []
        return {"status": "ok", "execution_count": self.execution_count, "payload": payload, "user_expressions": {}}

    def show(self, answer):
        bundles = [bundle for bundle in map(image_bundle, answer.get("images", [])) if bundle]
        for bundle in bundles:
            self.send_response(self.iopub_socket, "display_data", {"data": bundle, "metadata": {}})
        if "text" in answer and not bundles:
            data = {"text/plain": answer["text"]}
            if "html" in answer:
                data["text/html"] = answer["html"]
            self.send_response(self.iopub_socket, "execute_result",
                               {"data": data, "metadata": {}, "execution_count": self.execution_count})

    def do_complete(self, code, cursor_pos):
        before = code[:cursor_pos]
        answer = self.lua.ask(complete=before) or {}
        prefix = answer.get("prefix", "")
        return {"status": "ok", "matches": answer.get("matches", []), "cursor_start": cursor_pos - len(prefix), "cursor_end": cursor_pos,
                "metadata": {}}

    def do_inspect(self, code, cursor_pos, detail_level=0, omit_sections=()):
        end = cursor_pos
        while end < len(code) and (code[end].isalnum() or code[end] == "_"):
            end += 1  # the whole of the word that the cursor is in
        answer = self.lua.ask(inspect=code[:end]) or {}
        found = bool(answer.get("found"))
        return {"status": "ok", "found": found, "data": {"text/plain": answer["text"]} if found else {}, "metadata": {}}

    def do_is_complete(self, code):
        answer = self.lua.ask(is_complete=code) or {}
        return {"status": "complete"} if answer.get("complete") else {"status": "incomplete", "indent": "  "}

    def do_shutdown(self, restart):
        if self.session_of_lua is not None:
            self.session_of_lua.close()
            self.session_of_lua = None
        return {"status": "ok", "restart": restart}


if __name__ == "__main__":
    IPKernelApp.launch_instance(kernel_class=MoonshardKernel)
