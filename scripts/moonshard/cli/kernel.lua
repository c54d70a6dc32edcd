--- moonshard kernel: moonshard in Jupyter notebooks. `install` writes a kernelspec; `start` is the line in it, and becomes the Python
-- process of bindings/python/moonshard/kernel.py before Lua is asked (bindings/host/repl_kernel.cpp).
local native = require "moonshard.native"
local shell = require "moonshard.shell"
local usage = require "moonshard.usage"

local function env(name)
  local value = os.getenv(name)
  return value ~= "" and value or nil
end

--- Where Jupyter looks for a user's kernels.
local function user_folder()
  local data = env "JUPYTER_DATA_DIR" or env "XDG_DATA_HOME" and env "XDG_DATA_HOME" .. "/jupyter"
  local home = env "HOME"
  if not data and not home then usage.fail("kernel install: expected a home folder, got none; give --prefix DIR") end
  return data or home .. "/.local/share/jupyter"
end

local function python_of(given)
  local name = given or env "MOONSHARD_PYTHON" or "python3"
  local path = shell.first_line(("command -v %s 2>/dev/null"):format(shell.quoted(name)))
  if not path then usage.fail("kernel install: expected a Python, got '%s', which is not there; give --python FILE", name) end
  local has_kernel = shell.first_line(("%s -c 'import ipykernel; print(1)' 2>/dev/null"):format(shell.quoted(path)))
  return path, has_kernel ~= nil
end

local function install(given)
  if given.user and given.prefix then usage.fail("kernel install: expected --user or --prefix, got both") end
  local data = given.prefix and given.prefix .. "/share/jupyter" or user_folder()
  local folder = data .. "/kernels/moonshard"
  local python, has_kernel = python_of(given.python)
  local program = native.launch.program "moonshard"
  native.files.write(folder .. "/kernel.json", native.records.to_json {
    argv = { program, "kernel", "start", "--connection-file", "{connection_file}" },
    display_name = "moonshard", language = "lua", interrupt_mode = "signal", env = { MOONSHARD_PYTHON = python },
  })
  print(("kernel written: %s/kernel.json"):format(folder))
  if not has_kernel then print(("note: ipykernel is missing, which the kernel needs: %s -m pip install ipykernel"):format(python)) end
  return 0
end

return {
  usage = "install [--user | --prefix DIR] [--python FILE]",
  about = "Makes moonshard a kernel of Jupyter: notebooks whose cells are Lua, with tables and figures inline (docs/notebook.md).",
  flags = {
    { name = "user", kind = "boolean", doc = "for this user alone, which is the default" },
    { name = "prefix", kind = "text", value = "DIR", doc = "into DIR/share/jupyter, e.g. a virtual environment" },
    { name = "python", kind = "text", value = "FILE", doc = "a Python that has ipykernel; MOONSHARD_PYTHON or python3" },
  },
  positional = { name = "what", kind = "text", words = { "install" } },
  run = function(given)
    if given.what == "install" then return install(given) end
    usage.fail("kernel: expected install, got %s; moonshard kernel install --user", given.what and "'" .. given.what .. "'" or "nothing")
  end,
}
