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
if [ "$code" != 0 ] || [ -s "$work/err" ]; then
  echo "FAILED: exit $code: $(cat "$work/err")"
  exit 1
fi

# A window that nobody touches rests: at most 2 % of a core. What else runs on the machine can only make that more, so that one
# quiet stretch of six is enough; a window that draws on is above it in each.
cat >"$work/rest.sh" <<'REST'
allowed=$4
"$1" "$2" &
pid=$!
ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
sleep 6
for stretch in 1 2 3 4 5 6; do
  before=$(ticks)
  sleep 5
  used=$(($(ticks) - before))
  echo "$used" >>"$3"
  [ "$used" -le "$allowed" ] && break
done
kill "$pid"
wait "$pid" 2>/dev/null
exit 0
REST
allowed=$(($(getconf CLK_TCK) * 5 * 2 / 100))
XDG_CONFIG_HOME="$work/config" xvfb-run -a sh "$work/rest.sh" "$view" "$work/run" "$work/ticks" "$allowed"
used=$(tail -n 1 "$work/ticks")
[ -n "$used" ] && [ "$used" -le "$allowed" ] && exit 0
echo "FAILED: $(paste -s -d ' ' "$work/ticks") ticks of processor time in stretches of 5 s of rest, at most $allowed were expected"
exit 1
