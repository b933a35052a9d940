"""The look of summary.html."""

STYLE = """
:root{color-scheme:light dark;--ink:#1c2024;--soft:#5b6570;--ground:#fff;--panel:#f4f6f8;
--rule:#d9dee3;--line:#0b62a8;--before:#8a94a0;--mark:#c0362c}
@media (prefers-color-scheme:dark){:root{--ink:#e7eaed;--soft:#a3adb8;--ground:#15181b;
--panel:#1f2428;--rule:#353c43;--line:#6cb4f2;--before:#7d8791;--mark:#ff7b6e}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:62rem;margin:0 auto;padding:2rem 1.2rem 4rem}
h1{font-size:1.6rem;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
.lead{color:var(--soft);margin:.3rem 0 1.4rem;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.7rem}
.tiles div{background:var(--panel);border-radius:.5rem;padding:.7rem .9rem}
.tiles b{display:block;font-size:1.25rem}
.tiles span,small,figcaption{color:var(--soft);font-size:.85rem}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(17rem,1fr));gap:1rem}
figure{margin:0;background:var(--panel);border-radius:.5rem;padding:.7rem}
svg{display:block;width:100%;height:auto}
svg text{font-size:11px;fill:var(--soft)}
.grid{stroke:var(--rule);stroke-width:1}
.axis{fill:none;stroke:var(--before);stroke-width:1}
polyline{fill:none;stroke-width:1.6;vector-effect:non-scaling-stroke}
polyline.line{stroke:var(--line)}circle.line{fill:var(--line)}
polyline.reference{stroke:var(--soft);stroke-dasharray:5 4}circle.reference{fill:var(--soft)}
line.mark{stroke:var(--mark);stroke-width:1;vector-effect:non-scaling-stroke;opacity:.7}
.wide{overflow-x:auto;background:linear-gradient(90deg,var(--ground) 40%,transparent) 0/2rem 100%
no-repeat local,linear-gradient(270deg,var(--ground) 40%,transparent) 100%/2rem 100% no-repeat
local,linear-gradient(90deg,var(--rule),transparent) 0/.6rem 100% no-repeat,
linear-gradient(270deg,var(--rule),transparent) 100%/.6rem 100% no-repeat}
table{border-collapse:collapse;width:100%;font-size:.92rem}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;
border-bottom:1px solid var(--rule);overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600}
.short th,.short td{white-space:nowrap}
.short td:first-child{white-space:normal;overflow-wrap:break-word}
td:first-child{min-width:6rem}
.bar{display:flex;align-items:center;gap:.5rem;min-width:8rem;white-space:nowrap}
@media (min-width:60rem){.bar{width:16rem}}
.bar i{display:block;height:.7rem;border-radius:.2rem;background:var(--line);min-width:1px}
.bar i.before{background:var(--before)}
pre{background:var(--panel);border-radius:.5rem;padding:.9rem;overflow:auto;font-size:.88rem}
"""
