"""How a page looks: the style sheet of :mod:`.html`."""

STYLE = """\
*{box-sizing:border-box}
html{background:var(--paper);color:var(--ink);-webkit-text-size-adjust:100%}
body{margin:0;font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:72rem;margin:0 auto;padding:1.5rem 1.25rem 3rem}
h1{font-size:1.6rem;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:2rem 0 .5rem;overflow-wrap:anywhere}
.verb{margin:0;color:var(--faint);font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.85rem}
.conditions{margin:.25rem 0 0;color:var(--faint);overflow-wrap:anywhere}
.verdict{margin:1rem 0;padding:.6rem .9rem;border-left:.35rem solid var(--s3);background:var(--grid);font-weight:600;overflow-wrap:anywhere}
.verdict.bad{border-left-color:var(--s2)}
figure{margin:1.5rem 0}
figure svg{display:block;width:100%;height:auto}
figure svg.bar{height:2.25rem}
figure.narrow{display:none}
.scroll{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .9rem .3rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
tr>:last-child{padding-right:0}
thead th{border-bottom:2px solid var(--faint);vertical-align:bottom}
tbody th{font-weight:400;position:sticky;left:0;background:var(--paper)}
.n{text-align:right}
td.n{white-space:nowrap}
td:not(.n){min-width:4.5rem}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:.6rem 0 0;padding:0;font-size:.92rem}
.swatch{display:inline-block;width:.8em;height:.8em;margin-right:.45em;background:currentColor}
.s1{color:var(--s1);fill:var(--s1)}.s2{color:var(--s2);fill:var(--s2)}.s3{color:var(--s3);fill:var(--s3)}
.s4{color:var(--s4);fill:var(--s4)}.s5{color:var(--faint);fill:var(--faint)}.grid{color:var(--grid);fill:var(--grid)}
.ink{color:var(--ink);fill:var(--ink)}
.remarks{color:var(--faint);font-size:.92rem;padding-left:1.1rem;overflow-wrap:anywhere}
.remarks .warning{color:var(--ink);font-weight:600}
details{border-bottom:1px solid var(--grid);padding:.4rem 0}
summary{cursor:pointer;overflow-wrap:anywhere}
code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.88em}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) minmax(0,1fr);gap:.2rem 1rem;margin:.5rem 0 .5rem 1rem;font-size:.88rem}
dt{color:var(--faint);overflow-wrap:anywhere;max-width:14rem}
dd{margin:0;overflow-wrap:anywhere}
:focus-visible{outline:2px solid var(--s1);outline-offset:2px}
@media (max-width:700px){
main{padding:1rem .9rem 2rem}
h1{font-size:1.3rem}
figure.wide{display:none}
figure.narrow{display:block}
table,.key,dl{font-size:.82rem}
th,td{padding-right:.6rem}
tr>:last-child{padding-right:0}
tbody th{min-width:5.5rem;overflow-wrap:break-word}
dl{grid-template-columns:minmax(0,1fr);margin-left:0}
dt{max-width:none;margin-top:.3rem}
}
@media print{
main{max-width:none;padding:0}
.scroll{overflow:visible}
details::details-content{content-visibility:visible}
}
"""
