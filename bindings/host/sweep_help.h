// What `moonshard sweep --help` says, and the flags that completion offers. The verb itself is
// scripts/moonshard/sweep/command.lua.
#pragma once

namespace moonshard::host {

inline constexpr const char* kSweepFlags =
    "--set --only --resume --out --dry-run --retry --timeout --fail-fast --all --shuffle "
    "--launcher --slurm-args --no-lock --retry-oom --drain-timeout";

inline constexpr const char* kSweepHelp =
    "usage: moonshard sweep NAME|FILE.lua [flags] [flags of the script]\n"
    "Runs a sweep script: a path, or a name from scripts/studies. One process per point; every\n"
    "result is on disk at once.\n"
    "  --set KEY=VALUE      an experiment option for all points; replaces an axis\n"
    "  --only KEY=GLOB      only points that match, e.g. mode=flash*\n"
    "  --resume DIR         go on with a run folder: what is missing or failed runs, the rest "
    "stands\n"
    "  --retry-oom          with --resume: also points that ran out of memory\n"
    "  --out DIR            folder for the run folder (results)\n"
    "  --dry-run            list the points, with their state when resuming\n"
    "  --retry N            run a failed point up to N times more\n"
    "  --timeout S          end a point after S seconds; its status is timeout\n"
    "  --fail-fast          stop at the first failed point\n"
    "  --all                also points larger than one that ran out of memory\n"
    "  --shuffle [SEED]     in another order, against drift\n"
    "  --no-lock            do not wait for other sweeps on the same GPU\n"
    "  --drain-timeout S    how long to wait until a GPU's memory is free again (30)\n"
    "  --launcher slurm     as a Slurm job array instead of on this machine\n"
    "  --slurm-args \"...\"   more words for sbatch\n"
    "Ctrl-C stops after the current point; twice ends it now. Flags of the script: NAME --help.\n"
    "Exit code 5 when points failed, 130 after Ctrl-C.\n";

}  // namespace moonshard::host
