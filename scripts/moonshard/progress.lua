--- Progress of a sweep: one moving line with an ETA on a terminal, one line per point elsewhere, and progress.json in
-- the run folder for other programs.
local lists = require "moonshard.lists"
local native = require "moonshard.native"

local M = {}
local Progress = {}
Progress.__index = Progress

local file_period_s, line_period_s = 2, 0.1

--- @tparam number total points
-- @tparam[opt] function write_file takes the text of progress.json
function M.new(total, on_terminal, write_file)
  return setmetatable({ total = total, done = 0, failed = 0, on_terminal = on_terminal, write_file = write_file, kinds = {},
    at_work = {}, side_by_side = 1, began = native.launch.clock(), state = "running" }, Progress)
end

function M.clock_text(seconds)
  seconds = math.floor(seconds + 0.5)
  if seconds >= 3600 then return ("%d:%02d:%02d"):format(seconds / 3600, seconds / 60 % 60, seconds % 60) end
  return ("%d:%02d"):format(seconds / 60, seconds % 60)
end

local function write(text)
  io.stdout:write(text)
  io.stdout:flush()
end

local function kind_of(self, kind)
  self.kinds[kind] = self.kinds[kind] or { waiting = 0, measured = 0, spent = 0 }
  return self.kinds[kind]
end

--- Says that a point of a kind (its mode) is still to come: points of one mode take about the same time.
function Progress:expect(kind)
  kind = kind_of(self, kind)
  kind.waiting = kind.waiting + 1
end

--- Seconds that the rest will take; nil as long as nothing was measured.
function Progress:eta()
  local measured, spent = 0, 0
  for _, kind in pairs(self.kinds) do measured, spent = measured + kind.measured, spent + kind.spent end
  if measured == 0 then return nil end
  local function seconds_of(kind) return kind.measured > 0 and kind.spent / kind.measured or spent / measured end
  local left = 0
  for _, kind in pairs(self.kinds) do left = left + kind.waiting * seconds_of(kind) end
  for _, point in ipairs(self.at_work) do
    local expected = point.kind and seconds_of(kind_of(self, point.kind)) or 0
    left = left + math.max(expected - (native.launch.clock() - point.started), 0)
  end
  return left / self.side_by_side
end

--- progress.json, for other programs: every two seconds, at the start and at the end. That it cannot be written is said once.
function Progress:save(is_event)
  local now = native.launch.clock()
  if not self.write_file or (not is_event and now - (self.saved or 0) < file_period_s) then return end
  self.saved = now
  local eta = self:eta()
  local function shown(point) return { id = point.id, label = point.label, elapsed_s = now - point.started } end
  local ok, message = pcall(self.write_file, native.records.to_json {
    schema_version = 1, state = self.state, total = self.total, done = self.done,
    failed = self.failed, elapsed_s = now - self.began, eta_s = self.state == "running" and eta or native.null,
    current = self.at_work[1] and shown(self.at_work[1]) or native.null,
    at_work = #self.at_work > 1 and lists.map(self.at_work, shown) or nil,
    pid = native.launch.process_id(), host = native.launch.host_name(), updated = os.date("!%Y-%m-%dT%H:%M:%SZ") })
  -- Other programs see an old state; the sweep goes on.
  if not ok and not self.has_warned then
    self.has_warned = true
    self:say("warning: progress.json: " .. tostring(message))
  end
end

--- Removes the moving line, so that other text can be printed.
function Progress:close()
  if self.on_terminal and self.drawn then write("\r\27[K") end
  self.drawn = false
end

function Progress:say(text)
  self:close()
  write(text .. "\n")
end

--- A label that leaves the moving line on one line of most terminals.
local function short(label) return #label > 60 and label:sub(1, 57) .. "..." or label end

function Progress:tick()
  self:save(false)
  local now, width = native.launch.clock(), 24
  if not self.on_terminal or now - (self.ticked or 0) < line_period_s then return end
  self.ticked = now
  local filled, eta, first = math.floor(width * self.done / math.max(self.total, 1)), self:eta(), self.at_work[1]
  local more = #self.at_work > 1 and (" and %d more"):format(#self.at_work - 1) or ""
  write(("\r\27[K[%s%s] %d/%d%s, %s, eta %s  %s%s"):format(("#"):rep(filled), ("."):rep(width - filled), self.done, self.total,
    self.failed > 0 and (", %d failed"):format(self.failed) or "", M.clock_text(now - self.began), eta and M.clock_text(eta) or "...",
    first and short(first.label) or "", first and (" (%s)%s"):format(M.clock_text(now - first.started), more) or ""))
  self.drawn = true
end

--- Something begins that is no point of a kind: several points with another program.
function Progress:work_on(label)
  local first = self.at_work[1]
  self.at_work = { { label = label, started = first and first.started or native.launch.clock() } }
end

--- A point begins.
function Progress:start(point, kind)
  table.insert(self.at_work, { label = point.label, id = point.id, kind = kind, started = native.launch.clock() })
  kind = kind_of(self, kind)
  kind.waiting = math.max(kind.waiting - 1, 0)
  self.ticked = nil
  self:save(true)
  self:tick()
end

--- A point that needs no run.
function Progress:skip(text)
  self.done = self.done + 1
  self:say(("[%d/%d] %s"):format(self.done, self.total, text))
  self:save(false)
end

--- A point that was begun stops without an end of its own.
-- @treturn table what was noted of it; nil for one that was not begun
function Progress:leave(point)
  for i, each in ipairs(self.at_work) do
    if each.id == point.id then return table.remove(self.at_work, i) end
  end
end

--- A point's end, in one line.
function Progress:finish(point, text, failed)
  local noted = self:leave(point)
  if noted then
    local kind = kind_of(self, noted.kind)
    kind.measured, kind.spent = kind.measured + 1, kind.spent + native.launch.clock() - noted.started
  end
  self.done = self.done + 1
  if failed then self.failed = self.failed + 1 end
  self:say(("[%d/%d] %s: %s"):format(self.done, self.total, point.label, text))
  self:save(true)
end

--- The end of all: "finished" or "stopped".
function Progress:stop(state)
  self.state, self.at_work = state, {}
  self:close()
  self:save(true)
end

return M
