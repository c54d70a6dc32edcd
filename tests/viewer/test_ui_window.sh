#!/bin/sh
# The clicks and keys of ui_*.cpp once more, in a real window on a virtual screen.
# Usage: test_ui_window.sh PATH/TO/test_viewer_ui
# Exits 77 (skipped) without xvfb-run.
command -v xvfb-run >/dev/null || { echo "skipped: no xvfb-run (Debian: xvfb xauth)"; exit 77; }
MOONSHARD_UI_WINDOW=1 exec xvfb-run -a -s "-screen 0 1400x900x24" "$1"
