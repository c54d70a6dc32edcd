--- Simulated runs as run folders: what the simulator predicts, written by the ordinary writer, so that tables, figures, doctor and the
-- viewer open it. Every record says that it is modelled, and its `world` begins with "modelled:".
local lists = require "moonshard.lists"
local native = require "moonshard.native"
local folders = require "moonshard.sweep.folder"
local outcome = require "moonshard.sweep.outcome"

local M = {}

--- Options that every entry has beside those of an experiment: the cluster that it was simulated on.
local function cluster_options(cluster, machine)
  local options = { machine = machine.name, gpus = cluster.gpus or 1, nodes = cluster.nodes or 1,
    node_link = cluster.node_link or "infiniband", nics = cluster.nics or cluster.gpus or 1, slow_ranks = cluster.slow_ranks or 0,
    slow_by = cluster.slow_by or 0, jitter = cluster.jitter or 0 }
  -- What stands for the names' and the device's own.
  for _, name in ipairs { "link_gb_per_s", "link_latency_us", "node_link_gb_per_s", "node_link_latency_us", "host_gb_per_s" } do
    options[name] = cluster[name]
  end
  local memory_gb = cluster.memory_bytes and cluster.memory_bytes / 1e9 or machine.memory_gb
  if math.abs(memory_gb / machine.memory_gb - 1) > 1e-9 then options.memory_gb = memory_gb end
  return options
end

--- Simulates an entry; without a folder there are no traces.
local function simulate(entry, steps, folder)
  local record = native.plan.record(entry.options, entry.cluster, steps, folder or "")
  record.time.warmup_ms = nil -- an empty list would come back as an empty table
  record.options = lists.merged(record.options, cluster_options(entry.cluster, entry.machine))
  return record
end

local function label_of(entry)
  local words = {}
  for _, name in ipairs(entry.names or {}) do words[#words + 1] = ("%s=%s"):format(name, tostring(entry.asked[name])) end
  return table.concat(words, ", ")
end

--- Names of options in which entries differ: the axes of the folder.
local function axes_of(points)
  local axes, first = {}, points[1] and points[1].options or {}
  for name, value in pairs(first) do
    for _, point in ipairs(points) do
      if point.options[name] ~= value and type(value) ~= "table" then
        axes[#axes + 1] = name
        break
      end
    end
  end
  table.sort(axes)
  return axes
end

--- Writes a run folder of simulated runs.
-- @tparam table what name, out, steps (5), traces (true), axes (what differs), entries: list of { options, cluster, machine }
-- @treturn string its path
function M.write(what)
  local steps, points = what.steps or 5, {}
  for i, entry in ipairs(what.entries) do
    local record = simulate(entry, steps)
    local id = native.records.options_hash(record.options)
    points[i] = { id = id, options = record.options, asked = entry.asked or {}, label = label_of(entry), record = record, entry = entry,
      file = ("modelled_%s_result.json"):format(id:sub(1, 8)) }
  end
  local folder = folders.create { name = what.name or "modelled", out = what.out or "results", points = points,
    axes = what.axes or axes_of(points),
    own_run = true, request = { modelled = true } }
  local job = { folder = folder, sweep = { own_run = true }, bar = { say = function(_, text) io.stderr:write(text, "\n") end } }
  local ok, problem = pcall(function()
    for _, point in ipairs(points) do
      local place = native.records.make_point_folder(folder.writer, point.id)
      if what.traces ~= false then point.record = simulate(point.entry, steps, place) end
      point.record.id = point.id
      native.records.write_point(folder.writer, point.id, point.record)
      outcome.finish(job, point, native.records.load_point(folder.path, point.id))
    end
    native.records.write_index(folder.writer)
    local text, markdown = require("moonshard.runs").load(folder.path):summary()
    native.records.write_file(folder.writer, "summary.txt", text)
    native.records.write_file(folder.writer, "summary.md", markdown)
  end)
  folders.close(folder)
  if not ok then error(problem, 0) end
  return folder.path
end

return M
