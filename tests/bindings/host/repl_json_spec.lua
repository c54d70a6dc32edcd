--- moonshard repl --json, the prompt for programs, and moonshard kernel install.
local support = require "tests.support.support"

local program = support.shell_quoted(support.program())

-- Answers to requests, by id; streams are joined under .printed.
local function answers(requests)
  local folder = support.temporary_folder()
  support.write(folder .. "/in", table.concat(requests, "\n") .. "\n")
  local result = support.run(("exec %s repl --json < %s/in"):format(program, folder))
  support.remove(folder)
  assert.are.equal(0, result.code, result.err)
  local by_id, printed, lines = {}, {}, {}
  for line in result.out:gmatch("[^\n]+") do
    local answer = support.parse_json(line)
    lines[#lines + 1] = answer
    if answer.stream then
      printed[answer.id] = (printed[answer.id] or "") .. answer.text
    elseif type(answer.id) == "number" then
      by_id[answer.id] = answer
    end
  end
  for id, text in pairs(printed) do by_id[id].printed = text end
  return by_id, lines
end

describe("repl --json", function()
  it("greets, answers every request by its id, and keeps values between them", function()
    local got, lines = answers { '{"id": 1, "code": "x = 20"}', '{"id": 2, "code": "x + 1"}' }
    assert.is_true(lines[1].ready)
    assert.matches("moonshard", lines[1].banner)
    assert.are.equal("ok", got[1].status)
    assert.are.equal("21", got[2].text)
  end)

  it("separates what code prints from the answer, also of its children", function()
    local got = answers { [[{"id": 1, "code": "print('one') io.write('two') os.execute('echo three') return 4"}]] }
    assert.are.equal("one\ntwothree\n", (got[1].printed:gsub("^(one\n)(three\n)(two)$", "%1%3%2")))
    assert.are.equal("4", got[1].text)
  end)

  it("runs statements and then an expression, as cells of a notebook are", function()
    local got = answers { [[{"id": 1, "code": "local a = 1\nlocal b = 2\n{ a,\n  b }"}]], [[{"id": 2, "code": "y = 1\n?ms.zeros"}]] }
    assert.are.equal("{ 1, 2 }", got[1].text)
    assert.matches("A tensor of zeros", got[2].text)
  end)

  it("has errors with message and traceback, and goes on", function()
    local got = answers { [[{"id": 1, "code": "local function f() error('boom') end\nlocal function g() f() return 1 end\ng()"}]],
      '{"id": 2, "code": "1 +* 2"}', '{"id": 3, "code": "7"}' }
    assert.are.equal("error", got[1].status)
    assert.matches("boom", got[1].error.message)
    assert.matches("in function 'f'", table.concat(got[1].error.traceback, "\n"))
    assert.matches("unexpected symbol", got[2].error.message)
    assert.are.equal("7", got[3].text)
  end)

  it("gives tables as HTML and text, and pictures by path", function()
    local picture = support.root() .. "/docs/images/viewer.png"
    local got = answers { '{"id": 1, "code": "ms.engines()"}', ('{"id": 2, "code": "{ \'%s\' }"}'):format(picture) }
    assert.matches("<table>.*ghost", got[1].html)
    assert.matches("ghost +yes", got[1].text)
    assert.are.same({ { mime = "image/png", path = picture } }, got[2].images)
  end)

  it("completes for the call that the cursor is in", function()
    local got = answers { '{"id": 1, "complete": "ms.trainer{ cl"}', '{"id": 2, "complete": "ms.sweep{ gri"}',
      [[{"id": 3, "complete": "ms.run{ mode = \"gh"}]], [[{"id": 4, "complete": "ms.model(\"linear"}]],
      '{"id": 5, "code": "t = ms.zeros{1}"}', '{"id": 6, "complete": "t:s"}', '{"id": 7, "complete": "ms.trainer{ privacy = { del"}' }
    assert.are.same({ "clip", "clip_global_norm" }, got[1].matches)
    assert.are.same({ "grid" }, got[2].matches)
    assert.are.same({ "ghost" }, got[3].matches)
    assert.are.same({ "linear", "linear-tiny" }, got[4].matches)
    assert.are.same({ "select", "sqrt", "sub", "sum" }, got[6].matches)
    assert.are.same({ "delta" }, got[7].matches)
    assert.are.equal("del", got[7].prefix)
    got = answers { '{"id": 1, "complete": "ms.sweep{ mode = 1 }:"}', '{"id": 2, "complete": "ms.sweep{ mode = 1 }:run{ dry"}' }
    assert.are.same({ "run" }, got[1].matches)
    assert.are.same({ "dry_run" }, got[2].matches)
  end)

  it("explains names, calls and options", function()
    local got = answers { '{"id": 1, "inspect": "ms.clip"}', [[{"id": 2, "inspect": "ms.trainer{ clip = ms.clip(\"gho"}]],
      '{"id": 3, "inspect": "no_such_thing_at_all"}', [[{"id": 4, "code": "help \"seq_length\""}]], '{"id": 5, "code": "?Runs:plot"}' }
    assert.matches("max_grad_norm +number +1", got[1].text)
    assert.are.equal("ms.clip", got[2].name)
    assert.is_false(got[3].found)
    assert.matches("seq_length: option of .*experiment.*int, default 0.*tokens per sample", got[4].text)
    assert.matches("theme +light | dark.*example:", got[5].text)
  end)

  it("says whether an entry is whole, leaves on .exit, and gives code no input", function()
    local got = answers { '{"id": 1, "is_complete": "for i = 1, 2 do"}', '{"id": 2, "is_complete": "1"}', '{"id": 3, "code": "io.read()"}',
      '{"id": 4, "code": ".exit"}', '{"id": 5, "code": "1"}' }
    assert.is_false(got[1].complete)
    assert.is_true(got[2].complete)
    assert.are.equal("ok", got[3].status)
    assert.are.equal("exit", got[4].status)
    assert.is_nil(got[5])
  end)

  it("refuses what is no request, and goes on", function()
    local got, lines = answers { "nonsense", '{"id": 2}', '{"id": 3, "code": 5}', "[]", '{"id": 4, "code": "1"}' }
    assert.matches("expected JSON", lines[2].error.message)
    assert.matches("expected an object with code, complete, inspect or is_complete", got[2].error.message)
    assert.matches("expected a text as code", got[3].error.message)
    assert.are.equal("1", got[4].text)
  end)

  it("is stopped by SIGINT and keeps its values", function()
    local folder = support.temporary_folder()
    local script = ([[
mkfifo %s/in
%s repl --json < %s/in > %s/out 2> %s/err &
child=$!
exec 3> %s/in
echo '{"id": 1, "code": "kept = 5"}' >&3
echo '{"id": 2, "code": "print(\"go\") while true do end"}' >&3
for i in $(seq 200); do grep -q '"go' %s/out && break; sleep 0.05; done
kill -INT $child
echo '{"id": 3, "code": "kept"}' >&3
exec 3>&-
wait $child
]]):gsub("%%s/", folder:gsub("%%", "%%%%") .. "/"):gsub("%%s", (program:gsub("%%", "%%%%")))
    support.write(folder .. "/script", script)
    support.run("bash " .. folder .. "/script")
    local out = support.read(folder .. "/out")
    support.remove(folder)
    assert.matches('"id":2[^\n]*"status":"interrupted"', out)
    assert.matches('"id":3[^\n]*"text":"5"', out)
  end)
end)

describe("kernel install", function()
  it("writes a kernelspec whose program starts the kernel", function()
    local folder = support.temporary_folder()
    local result = support.run(("exec %s kernel install --prefix %s"):format(program, folder))
    assert.are.equal(0, result.code, result.err)
    local spec = support.parse_json(support.read(folder .. "/share/jupyter/kernels/moonshard/kernel.json"))
    support.remove(folder)
    assert.are.same({ "kernel", "start", "--connection-file", "{connection_file}" }, { unpack(spec.argv, 2) })
    assert.are.equal("lua", spec.language)
    assert.matches("^/.*python", spec.env.MOONSHARD_PYTHON)
    assert.are.equal(support.program(), support.first_line("readlink -f " .. support.shell_quoted(spec.argv[1])))
  end)

  it("goes into the user's folder by default", function()
    local folder = support.temporary_folder()
    local result = support.run(("exec %s kernel install"):format(program), { environment = { JUPYTER_DATA_DIR = folder } })
    assert.are.equal(0, result.code, result.err)
    assert.is_true(support.exists(folder .. "/kernels/moonshard/kernel.json"))
    support.remove(folder)
  end)

  it("refuses other words with what to do", function()
    local function complaint(words) return support.run(("exec %s kernel %s"):format(program, words)).err end
    assert.matches("expected install, got 'remove'; moonshard kernel install %-%-user", complaint "remove")
    assert.matches("expected %-%-user or %-%-prefix, got both", complaint "install --user --prefix /tmp")
    assert.matches("got 'no%-such%-python', which is not there; give %-%-python", complaint "install --prefix /tmp --python no-such-python")
    assert.matches("kernel start: expected %-%-connection%-file FILE", complaint "start")
  end)
end)
