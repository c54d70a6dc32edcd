--- Two hosts on this machine, for the specs: network namespaces with addresses, names and a wire of their own; hostb has process ids
-- of its own, too, so that neither sees the other's processes as those of its machine. The file system is shared. A host's own name
-- is a loopback address to itself, as Debian has it, and its first interface leads nowhere.
local support = require "tests.support.support"
local M = {}

M.address = { a = "10.77.0.1", b = "10.77.0.2" }

--- Why there can be none here; nil when there can.
function M.absence()
  if support.first_line("id -u") ~= "0" then return "namespaces need root" end
  for _, program in ipairs { "ip", "unshare", "nsenter", "luajit" } do
    if support.first_line("command -v " .. program) == "" then return program .. " is not installed" end
  end
  local probe = support.first_line "mktemp -u msXXXXXXXX"
  local function may(command) return os.execute(command .. " >/dev/null 2>&1") == 0 end
  local is_allowed = may "unshare --net --pid --mount --uts --fork --mount-proc true" and may("ip netns add " .. probe)
  -- Containers have namespaces without TUN devices and virtual pairs.
  local devices = "ip tuntap add tt0 mode tun && ip link add aa0 type veth peer name aa1"
  is_allowed = is_allowed and may(("ip netns exec %s sh -c '%s'"):format(probe, devices))
  may("ip netns del " .. probe)
  if not is_allowed then return "namespaces, TUN devices or virtual pairs are not allowed here" end
end

local Hosts = {}
Hosts.__index = Hosts

--- A shell command, to be run on a host ("a" or "b").
function Hosts:on(host, command)
  return ("nsenter -t %s -n -m -u %s sh -c %s"):format(self.holder[host], host == "b" and "-p" or "", support.shell_quoted(command))
end

function Hosts:run(host, command, options) return support.run("exec " .. self:on(host, command), options) end

--- The wire from now on: delay in ms and share of lost packets, one way.
function Hosts:wire(delay, loss)
  support.write(self.folder .. "/wire.new", ("%g %g\n"):format(delay, loss))
  os.rename(self.folder .. "/wire.new", self.folder .. "/wire")
end

--- Command lines of the processes on a host with a text in them.
function Hosts:processes(host, text)
  local found = {}
  local pipe = io.popen(self:on(host, "ps axww -o args="))
  for line in pipe:lines() do
    if line:find(text, 1, true) and not line:find("ps axww", 1, true) then found[#found + 1] = line end
  end
  pipe:close()
  return found
end

function Hosts:close()
  os.remove(self.folder .. "/wire")  -- ends the wire
  for host in pairs(M.address) do
    os.execute(("ip netns pids %s | xargs -r kill -9 2>/dev/null; ip netns del %s"):format(self.name[host], self.name[host]))
  end
  support.remove(self.folder)
end

--- Makes the hosts hosta and hostb; `shell` is a remote shell that reaches hostb from hosta.
function M.make()
  local self = setmetatable({ folder = support.temporary_folder(), holder = {}, name = {} }, Hosts)
  local unique = self.folder:match("%.(%w+)$")
  self.shell = self.folder .. "/shell"
  for host in pairs(M.address) do
    self.name[host] = "ms" .. unique .. host
    support.write(("%s/hosts.%s"):format(self.folder, host), ("127.0.0.1 localhost\n127.0.1.1 host%s\n%s hosta\n%s hostb\n"):format(
      host, M.address.a, M.address.b))
    assert(os.execute(([[ip netns add %s && ip netns exec %s sh -c 'ip link set lo up
      ip link add aa0 type veth peer name aa1 && ip addr add 192.168.77.5/24 dev aa0 && ip link set aa0 up && ip link set aa1 up']]):format(
      self.name[host], self.name[host])) == 0)
  end
  self:wire(0, 0)
  os.execute(("luajit %s/tests/support/lossy_link.lua %s %s %s %s %s/wire >%s/wire.log 2>&1 &"):format(support.root(), self.name.a,
    M.address.a, self.name.b, M.address.b, self.folder, self.folder))
  for host in pairs(M.address) do
    os.execute(([[ip netns exec %s unshare %s --mount --uts sh -c \
      'hostname host%s; mount --bind %s/hosts.%s /etc/hosts; exec sleep 1000' >/dev/null 2>&1 &]]):format(self.name[host],
      host == "b" and "--pid --fork --kill-child --mount-proc" or "", host, self.folder, host))
    -- A process to enter by, by its number here.
    assert(support.wait_for(function()
      self.holder[host] = support.first_line(
        ("for p in $(ip netns pids %s); do grep -qs '^sleep' /proc/$p/comm && echo $p; done"):format(self.name[host]))
      return self.holder[host] ~= ""
    end, 5), "no process in the namespace")
  end
  support.write(self.shell, ([[#!/bin/sh
# As ssh HOST COMMAND: over the wire, a login shell that greets, an environment of its own.
case $1 in hostb|%s) ;; *) echo "$0: unknown host $1" >&2; exit 255 ;; esac
shift
exec luajit %s/tests/support/remote_shell.lua connect %s 22 "echo welcome; cd /; $*"
]]):format(M.address.b, support.root(), M.address.b))
  os.execute("chmod 700 " .. self.shell)
  local function wait_until(host, command, text)
    assert(support.wait_for(function() return self:run(host, command).out:find(text, 1, true) end, 5),
      support.read(self.folder .. "/wire.log"))
  end
  wait_until("a", "ip route", M.address.a)
  wait_until("b", "ip route", M.address.b)
  os.execute(("env -i PATH=\"$PATH\" HOME=/root %s >/dev/null 2>&1 &"):format(
    self:on("b", ("exec luajit %s/tests/support/remote_shell.lua serve %s 22"):format(support.root(), M.address.b))))
  wait_until("b", "cat /proc/net/tcp", ":0016 ")
  return self
end

return M
