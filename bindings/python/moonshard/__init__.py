"""moonshard from Python: start the program, find its Lua module, read its run folders.

The experiments themselves are Lua scripts; this package runs and reads them:

    import moonshard
    moonshard.run("sweep", "engine_speed", "--device", "cpu")
    for point in moonshard.load("results/run_20261116_120000_engine_speed"):
        print(point["options"]["mode"], point["metrics"]["median_time_ms"])
"""
from .launch import Failure, lua_cpath, prefix, program, run
from .results import frame, load, rows

__version__ = "@VERSION@"
__all__ = ["Failure", "frame", "load", "lua_cpath", "prefix", "program", "rows", "run"]
