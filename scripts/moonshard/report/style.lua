--- The style sheet of a report: readable on a phone, on a screen in light and dark, and on paper. Nothing is loaded from anywhere.
local colors = require "moonshard.svg.colors"
local looks = require "moonshard.svg.looks"

local M = {}

local rules = [[
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1rem;font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;
background:var(--paper);color:var(--ink)}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.2rem;margin:2rem 0 .5rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
p{margin:.5rem 0}
a{color:var(--c0)}
nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.5rem 0}
.muted,.note,nav{color:var(--quiet);font-size:.9rem}
.box{border-left:4px solid var(--c3);background:var(--raised);padding:.4rem .8rem;margin:.6rem 0}
.box.bad{border-color:var(--c1)}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);white-space:nowrap}
thead th{border-bottom:2px solid var(--line);font-weight:600}
tbody th{font-weight:400}
td.n,th.n{text-align:right}
tr.baseline{color:var(--quiet)}
tr.bad td,tr.bad th{color:var(--bad)}
.prose td,.prose th{white-space:normal;min-width:6rem}
.verdict{font-weight:600}
.confirmed{color:var(--good)}.refuted{color:var(--bad)}.undecided{color:var(--open)}.not-measured{color:var(--quiet)}
dl.claims{margin:.5rem 0}
dl.claims dd{margin:0 0 .8rem 0;color:var(--quiet);font-size:.9rem;overflow-wrap:anywhere}
pre{background:var(--raised);padding:.6rem .8rem;overflow-x:auto;font-size:.85rem;line-height:1.4}
figure{margin:1.5rem 0}
figcaption{font-weight:600}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;padding:0;margin:.3rem 0;font-size:.85rem}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}
.panels{display:flex;flex-wrap:wrap;gap:1rem}
.panel{max-width:100%;overflow-x:auto;flex:0 1 auto}
.panel .name{font-size:.85rem;color:var(--quiet)}
svg{display:block;max-width:100%;height:auto}
svg.defs{position:absolute;width:0;height:0}
@media print{:root{font-size:10px}body{max-width:none;font-size:10px;padding:0}nav{display:none}
tr,dt,.panel{break-inside:avoid}h2,figcaption,.legend,.panel .name{break-after:avoid}.panels{gap:.5rem}.panel{width:48%!important}
.wide,.panel,pre{overflow:visible}pre{white-space:pre-wrap}table{font-size:7.5px}th,td{padding:1px 4px;white-space:normal}
svg{min-width:0!important}}
]]

-- Colours of a page besides those of its figures.
local light = "--raised:#f4f5f7;--good:#00734f;--bad:#b34700;--open:#8a6100;" .. looks.variables "light"
local dark = "--raised:#22252b;--good:#22b88c;--bad:#ee7733;--open:#e8ac1c;" .. looks.variables "dark"
local font = [[system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif]]

--- The text of the style element.
function M.sheet()
  local parts = { (":root{color-scheme:light dark;%s}"):format(light),
    ("@media screen and (prefers-color-scheme:dark){:root{%s}}"):format(dark), looks.rules(font), rules }
  for i = 0, #colors.light - 1 do parts[#parts + 1] = (".k%d{background:var(--c%d)}"):format(i, i) end
  return table.concat(parts, "\n")
end

--- What all figures share: the hatching of points that failed.
M.definitions = ('<svg class="defs" aria-hidden="true"><defs>%s</defs></svg>'):format(looks.hatching)

return M
