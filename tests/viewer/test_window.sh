#!/bin/sh
# Opens the real window on a virtual screen for some frames.
# Usage: test_window.sh PATH/TO/moonshard-view
# Exits 77 (skipped) without xvfb-run.
view=$1
command -v xvfb-run >/dev/null || { echo "skipped: no xvfb-run (Debian: xvfb xauth)"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/run/points/p0"
cat >"$work/run/sweep.json" <<'SWEEP'
{"schema_version": 1, "name": "window", "axes": ["mode"],
 "points": [{"id": "p0", "options": {"mode": "ghost"}}, {"id": "p1", "options": {"mode": "flash"}}]}
SWEEP
printf 'running\n' >"$work/run/points/p0/status"
xvfb-run -a "$view" "$work/run" --frames 10 2>"$work/err"
code=$?
[ "$code" = 0 ] && [ ! -s "$work/err" ] && exit 0
echo "FAILED: exit $code: $(cat "$work/err")"
exit 1
