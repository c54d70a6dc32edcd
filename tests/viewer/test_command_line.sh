#!/bin/sh
# Exit codes and one-line messages of moonshard-view.
# Usage: test_command_line.sh PATH/TO/moonshard-view
# Exits 77 (skipped) where nothing can be drawn without a display.
view=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# expect CODE TEXT ARGUMENTS...: the program ends with CODE and one line on stderr that holds TEXT.
expect() {
  code=$1 text=$2
  shift 2
  "$view" "$@" >"$work/out" 2>"$work/err"
  got=$?
  lines=$(wc -l <"$work/err")
  if [ "$got" != "$code" ] || { [ -n "$text" ] && ! grep -qF -- "$text" "$work/err"; } ||
     { [ "$code" != 0 ] && [ "$lines" != 1 ]; }; then
    echo "FAILED: $* -> exit $got (expected $code), $lines lines: $(cat "$work/err")"
    failed=1
  fi
}

cat >"$work/good.plot.json" <<'SPEC'
{"schema_version": 1, "width": 300, "height": 200,
 "panels": [{"kind": "bars", "x": {"categories": ["a"]}, "series": [{"x": [0], "y": [1]}]}]}
SPEC
mkdir "$work/run" "$work/nothing"
printf '{"schema_version": 1, "axes": [], "points": []}' >"$work/run/sweep.json"
printf '{"schema_version": 1, "panels": [{"kind": "\\u001b[31m"}]}' >"$work/bad.plot.json"

if ! "$view" --render "$work/good.plot.json" -o "$work/good.png" 2>"$work/err"; then
  grep -q "without a display" "$work/err" && { echo "skipped: $(cat "$work/err")"; exit 77; }
fi
[ -s "$work/good.png" ] || { echo "FAILED: no picture: $(cat "$work/err")"; failed=1; }

expect 0 "" --version
expect 0 "" --help
expect 2 "expected a run folder" --screenshot "$work/x.png"
expect 2 "--panel" "$work/run" --screenshot "$work/x.png" --panel nonsense
expect 2 "did you mean 'memory'" "$work/run" --screenshot "$work/x.png" --panel memry
expect 2 "did you mean 'layers'" "$work/run" --screenshot "$work/x.png" --front layer
expect 2 "--select" "$work/run" --screenshot "$work/x.png" --select nobody
expect 2 "--filter" "$work/run" --screenshot "$work/x.png" --filter "nothing = 1"
expect 2 "see --help" --no-such-option
expect 2 "theme" "$work" --theme blue
expect 2 "--size" "$work" --screenshot "$work/x.png" --size huge
expect 2 "one file per spec" --render "$work/good.plot.json" "$work/good.plot.json" -o "$work/x.png"
expect 1 "sweep.json" "$work/nothing" --screenshot "$work/x.png"
expect 1 "nothing at that path" "$work/missing" --screenshot "$work/x.png"
expect 1 "docs/plots.md" --render "$work/bad.plot.json" -o "$work/x.png"
expect 1 "missing.plot.json" --render "$work/missing.plot.json" -o "$work/x.png"
expect 1 "" --render "$work/good.plot.json" -o "$work/no/such/folder/x.png"
expect 2 "--screenshot" "$work/run" --screenshot ""
expect 2 "--text-scale" "$work/run" --screenshot "$work/x.png" --text-scale nan
mkfifo "$work/pipe.png"
expect 1 "a device or a pipe" "$work/run" --screenshot "$work/pipe.png"
[ -p "$work/pipe.png" ] || { echo "FAILED: a picture took the place of a pipe"; failed=1; }
expect 1 "a folder" --render "$work/good.plot.json" -o "$work/nothing"
[ -e "$work/x.png" ] && { echo "FAILED: a failed command left a picture"; failed=1; }

# A damaged spec does not keep the others from being drawn.
mkdir "$work/pictures"
expect 1 "bad.plot.json" --render "$work/bad.plot.json" "$work/good.plot.json" \
  --out-dir "$work/pictures"
[ -s "$work/pictures/good.png" ] || { echo "FAILED: --out-dir drew nothing"; failed=1; }

# A chart by itself, as Export saves it.
expect 2 "--panel" "$work/run" --figure "$work/x.png"
expect 2 "shows none" "$work/run" --panel comparison --figure "$work/x.png"
mkdir -p "$work/chart/points/p0"
printf '%s' '{"schema_version": 1, "axes": [], "points": [{"id": "p0", "options": {"mode": "none"}}]}' \
  >"$work/chart/sweep.json"
printf '%s' '{"schema_version": 1, "status": "ok", "options": {"mode": "none"},
 "metrics": {"median_time_ms": 5, "peak_memory_bytes": 1000000}}' >"$work/chart/points/p0/result.json"
expect 0 "" "$work/chart" --panel tradeoff --figure "$work/figure.png"
[ -s "$work/figure.png" ] || { echo "FAILED: --figure saved nothing"; failed=1; }

# A list of paths may hold others' files.
echo text >"$work/README.md"
expect 0 "" "$work/README.md" "$work/nothing" "$work/run" --screenshot "$work/listed.png"
expect 1 "sweep.json" "$work/README.md" --screenshot "$work/x.png"

# Without a display the window says what to do.
unset DISPLAY WAYLAND_DISPLAY
printf '{"schema_version": 1, "axes": [], "points": []}' >"$work/sweep.json"
expect 1 "--screenshot" "$work" --frames 1
expect 0 "" "$work" --screenshot "$work/empty.png"
exit $failed
