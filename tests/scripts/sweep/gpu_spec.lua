--- What a sweep's parent does about GPUs, on a machine that has none: a stand-in for the driver's management library says
-- that there are two, and a stand-in for the point's process writes the result. The parent is the real one.
local support = require "tests.support.sweeps"

local place, environment
local has_compiler = support.first_line("command -v cc") ~= ""

--- libnvidia-ml.so.1 with two GPUs; GPU 0's memory in use and its process are read from the file "used" (MiB, pid).
local library = [[
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } rates_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
static void look(unsigned long long* mib, unsigned* pid) {
  FILE* file = fopen("PLACE/used", "r");
  *mib = 100; *pid = 0;
  if (file) { if (fscanf(file, "%llu %u", mib, pid) < 1) *mib = 100; fclose(file); }
}
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { *device = (void*)(unsigned long)(index + 1); return 0; }
int nvmlDeviceGetName(void* d, char* text, unsigned size) { snprintf(text, size, "Stand-in %d", (int)(long)d - 1); return 0; }
int nvmlDeviceGetUUID(void* d, char* text, unsigned size) { snprintf(text, size, "GPU-%d", (int)(long)d - 1); return 0; }
int nvmlDeviceGetMemoryInfo(void* d, memory_t* m) {
  unsigned long long mib; unsigned pid; look(&mib, &pid);
  m->total = 80ull << 30; m->used = (d == (void*)1 ? mib : 100) << 20; m->free = m->total - m->used; return 0;
}
int nvmlDeviceGetUtilizationRates(void* d, rates_t* r) { r->gpu = 7; r->memory = 3; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void* d, unsigned* count, process_t* list) {
  unsigned long long mib; unsigned pid; look(&mib, &pid);
  *count = d == (void*)1 && pid ? 1 : 0;
  if (*count) { list[0].pid = pid; list[0].used = mib << 20; }
  return 0;
}
]]

--- The point's process: notes which GPU it was given, may leave memory behind, writes a good record.
local child = [[#!/bin/sh
[ "$1" = point ] || exec PROGRAM "$@"
echo "$CUDA_VISIBLE_DEVICES" >>PLACE/given
[ -f PLACE/slow ] && sleep 2
mkdir -p "$2/points/$3"
printf '{"schema_version":1,"status":"ok","id":"%s","options":{"mode":"none","seq_length":1,"batch_size":1,"model":"linear-tiny",
"device":"cuda","vocab_size":1,"lr":1,"noise_multiplier":1,"max_grad_norm":1},"metrics":{"avg_time_ms":1,"median_time_ms":1,
"peak_memory_mb":1,"peak_memory_gb":1}}' "$3" >"$2/points/$3/result.json"
]]

local function filled(text) return (text:gsub("PLACE", place.path):gsub("PROGRAM", place.program)) end

before_each(function()
  place = support.place()
  if not has_compiler then return end
  support.write(place.path .. "/nvml.c", filled(library))
  os.execute(("mkdir -p %s/lib %s/prefix/bin %s/locks"):format(place.path, place.path, place.path))
  os.execute(("cc -shared -fPIC -o %s/lib/libnvidia-ml.so.1 %s/nvml.c 2>%s/cc.txt"):format(place.path, place.path, place.path))
  os.execute(("ln -s %s %s/prefix/share"):format((place.program:gsub("/bin/moonshard$", "/share")), place.path))
  support.write(place.path .. "/prefix/bin/moonshard", filled(child))
  os.execute(("chmod +x %s/prefix/bin/moonshard"):format(place.path))
  environment = { LD_LIBRARY_PATH = place.path .. "/lib:" .. (os.getenv("LD_LIBRARY_PATH") or ""),
    MOONSHARD_PREFIX = place.path .. "/prefix", MOONSHARD_LOCK_DIR = place.path .. "/locks" }
end)
after_each(function() place:remove() end)

local function skipped()
  if has_compiler then return false end
  print("skipped: no C compiler for the stand-in of libnvidia-ml.so.1")
  return true
end

local text = [[ms.sweep { out = "OUT", model = "linear-tiny", grid = { seq_length = { 1, 2 } } }:run()]]

describe("ms.gpus", function()
  it("lists what the driver shows and CUDA_VISIBLE_DEVICES leaves", function()
    if skipped() then return end
    support.write(place.path .. "/used", ("2048 %d"):format(support.first_line("echo $PPID")))
    place:script([[
      for _, gpu in ipairs(ms.gpus().gpus) do
        print(gpu.index, gpu.uuid, gpu.name, gpu.memory_used_bytes, gpu.utilization_percent, #gpu.processes)
      end
      print("absence: " .. ms.gpus().absence)]])
    local result = place:run("run sweep.lua", { environment = environment })
    assert.matches("0\tGPU-0\tStand-in 0\t2147483648\t7\t1\n1\tGPU-1\tStand-in 1\t104857600\t7\t0\nabsence: \n", result.out, 1, true)
    environment.CUDA_VISIBLE_DEVICES = "1"
    assert.matches("^1\tGPU%-1", place:run("run sweep.lua", { environment = environment }).out)
    environment.CUDA_VISIBLE_DEVICES = "GPU-1,GPU-0"
    assert.matches("^1\tGPU%-1.*\n0\tGPU%-0", place:run("run sweep.lua", { environment = environment }).out)
    environment.CUDA_VISIBLE_DEVICES = "0,7,1"
    assert.matches("^0\tGPU%-0[^\n]*\nabsence", place:run("run sweep.lua", { environment = environment }).out)
    environment.CUDA_VISIBLE_DEVICES = "MIG-3"
    assert.matches("\tMIG%-3\ta slice of a GPU", place:run("run sweep.lua", { environment = environment }).out)
    environment.CUDA_VISIBLE_DEVICES = ""
    assert.matches("absence: CUDA_VISIBLE_DEVICES hides all GPUs", place:run("run sweep.lua", { environment = environment }).out, 1, true)
  end)
end)

describe("a sweep on GPUs", function()
  it("takes the GPU that is free, and tells the child which", function()
    if skipped() then return end
    place:script(text)
    local result = place:run("sweep sweep.lua", { environment = environment })
    assert.are.equal(0, result.code, result.out .. result.err)
    assert.are.equal("GPU-0\nGPU-0\n", support.read(place.path .. "/given"))
    place:script((text:gsub('model = "linear%-tiny"', '%0, device = "cuda:1"')))
    os.remove(place.path .. "/given")
    assert.are.equal(0, place:run("sweep sweep.lua", { environment = environment }).code)
    assert.are.equal("GPU-1\nGPU-1\n", support.read(place.path .. "/given"))
  end)

  it("two sweeps take two GPUs; a third waits and says who has them", function()
    if skipped() then return end
    support.write(place.path .. "/slow", "")
    place:script((text:gsub("1, 2", "1")))
    local first = place:start("sweep sweep.lua", environment)
    assert.is_true(support.wait_for(function() return (support.read(place.path .. "/given") or "") == "GPU-0\n" end, 10))
    local second = place:start("sweep sweep.lua", environment)
    assert.is_true(support.wait_for(function() return (support.read(place.path .. "/given") or "") == "GPU-0\nGPU-1\n" end, 10))
    local result = place:run("sweep sweep.lua", { environment = environment })
    assert.are.equal(0, result.code, result.err)
    assert.matches(("GPU 0 is in use by pid %d on "):format(first), result.out, 1, true)
    assert.matches("waiting for it (--no-lock would not)", result.out, 1, true)
    assert.is_true(support.wait_end(first, 10) and support.wait_end(second, 10))
    assert.are.same({}, support.list(place.path .. "/locks"))
  end)

  it("waits until the memory of the last point has drained, and says who holds it", function()
    if skipped() then return end
    local leaves = "[ -f PLACE/done ] || echo \"4096 $$\" >PLACE/used\nmkdir"
    support.write(place.path .. "/prefix/bin/moonshard", filled((child:gsub("mkdir", leaves))))
    place:script(text)
    local parent = place:start("sweep sweep.lua", environment)
    finally(function() support.kill(parent) end)
    local function waits() return (support.read(place.path .. "/out") or ""):find("waiting until it has drained", 1, true) end
    assert.is_true(support.wait_for(waits, 15) ~= nil, support.read(place.path .. "/out"))
    assert.matches("GPU 0 has 4.00 GiB in use, 3.90 GiB more than at the start, held by pid %d+ %(unknown, 4.00 GiB%)",
      support.read(place.path .. "/out"))
    assert.are.equal("GPU-0\n", support.read(place.path .. "/given"))
    support.write(place.path .. "/done", "")
    os.remove(place.path .. "/used")
    assert.is_true(support.wait_end(parent, 10))
    assert.are.equal("GPU-0\nGPU-0\n", support.read(place.path .. "/given"))
  end)

  it("goes on with a warning when it does not drain", function()
    if skipped() then return end
    support.write(place.path .. "/prefix/bin/moonshard", filled((child:gsub("mkdir", "echo \"4096 $$\" >PLACE/used\nmkdir"))))
    place:script(text)
    local result = place:run("sweep sweep.lua --drain-timeout 1", { environment = environment })
    assert.are.equal(0, result.code, result.err)
    assert.matches("warning: GPU 0 has 4.00 GiB in use", result.out, 1, true)
    assert.are.equal("GPU-0\nGPU-0\n", support.read(place.path .. "/given"))
  end)
end)

describe("the parent", function()
  it("never loads LibTorch's CUDA half, where ms.resolve does", function()
    if skipped() then return end
    -- A machine where the driver's device file is there: asked for it, access() says yes.
    support.write(place.path .. "/shim.c", [[
      #define _GNU_SOURCE
      #include <dlfcn.h>
      #include <string.h>
      int access(const char* path, int mode) {
        if (strcmp(path, "/dev/nvidiactl") == 0) return 0;
        return ((int (*)(const char*, int))dlsym(RTLD_NEXT, "access"))(path, mode);
      }]])
    os.execute(("cc -shared -fPIC -o %s/shim.so %s/shim.c -ldl"):format(place.path, place.path))
    environment.LD_PRELOAD = place.path .. "/shim.so"
    local maps = [[
      local function says(what)
        local text = io.open("/proc/self/maps"):read("*a")
        print(what, text:find("libtorch_cuda", 1, true) and "CUDA is loaded" or "no CUDA")
      end
      ]]
    place:script(maps .. text .. [[ says "after the sweep"
      pcall(ms.resolve, { device = "auto" })
      says "after ms.resolve"]])
    local result = place:run("run sweep.lua", { environment = environment })
    assert.matches("after the sweep\tno CUDA\n", result.out, 1, true)
    if result.out:find("after ms.resolve\tno CUDA", 1, true) then
      print("not shown: this LibTorch has no CUDA half that could be loaded")
    end
  end)
end)
