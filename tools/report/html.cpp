#include "tools/report/html.h"

#include "tools/terminal/text.h"

namespace ferry::tool {

std::string html(std::string_view text) {
  std::string result;
  for (char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

const std::string_view kReportStyle = R"(
:root{color-scheme:light dark;--back:#fbfbfa;--card:#fff;--text:#1c1e21;--soft:#5a6068;--line:#d9dce0;
--model:#2563a8;--optimizer:#b45f06;--saturation:55%;--light:80%;--ink:#16181b}
@media(prefers-color-scheme:dark){:root{--back:#14161a;--card:#1c1f25;--text:#e8eaed;--soft:#a4abb5;--line:#363b44;
--model:#6ea8e6;--optimizer:#e8a45c;--saturation:38%;--light:31%;--ink:#f2f4f7}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main,header,nav,footer{max-width:76rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:2rem}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem}
h3{font-size:1rem;margin:0}
p{margin:.25rem 0 .75rem;max-width:60rem}
.soft{color:var(--soft)}
a{color:var(--model)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;padding:0;margin:1rem 0 0}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--card);padding:.5rem}
code,.mono{font-family:ui-monospace,monospace;font-size:.875em;overflow-wrap:anywhere}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(10rem,1fr));gap:.75rem;margin:1.25rem 0}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.75rem 1rem;min-width:0}
.tile b{display:block;font-size:1.45rem;line-height:1.3;font-weight:600}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:.6rem}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:3px solid var(--model);outline-offset:2px}
table{border-collapse:collapse;width:100%}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
th,td{padding:.45rem .75rem;text-align:left;vertical-align:top;border-top:1px solid var(--line)}
thead th{border-top:0;color:var(--soft);font-weight:500;font-size:.875rem;white-space:nowrap}
tbody th{font-weight:400}
.facts th{width:9rem;color:var(--soft)}.facts td{overflow-wrap:anywhere}
.name{min-width:15rem}
tbody:first-child tr:first-child>*{border-top:0}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
summary{cursor:pointer}
.tree details,.tree .leaf{border-top:1px solid var(--line)}
.tree>details:first-child,.tree>.leaf:first-child{border-top:0}
.tree details>*:not(summary){margin-left:1.25rem}
.tree summary{padding:.4rem .75rem}.tree .leaf{padding:.4rem .75rem .4rem 2rem}.tree .leaf .row{width:100%}
.row{display:inline-grid;grid-template-columns:minmax(8rem,1fr) 7rem 12rem;gap:1rem;align-items:center;width:calc(100% - 1.25rem);vertical-align:top}
.bar{display:flex;height:.8rem;border-radius:.2rem;overflow:hidden;background:var(--line)}
.bar i{display:block;height:100%}
.m{background:var(--model)}.o{background:repeating-linear-gradient(135deg,var(--optimizer) 0 5px,transparent 5px 7px),var(--optimizer)}
.key{display:inline-flex;gap:.4rem;align-items:center;margin-right:1.25rem}.key i{width:1rem;height:.8rem;border-radius:.2rem}
svg{display:block;max-width:100%}
.map rect{fill:hsl(var(--h) var(--saturation) var(--light));stroke:var(--card);stroke-width:1}.map .thin{stroke:none}
.map text{fill:var(--ink);font:11px ui-monospace,monospace;text-anchor:middle;dominant-baseline:central}
.swatch{display:inline-block;min-width:2rem;text-align:center;padding:0 .35rem;border-radius:.25rem;color:var(--ink);
background:hsl(var(--h) var(--saturation) var(--light))}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(19rem,1fr));gap:.75rem}
td .bar{margin-top:.4rem}
.hist{width:100%;height:auto}.hist path{fill:var(--model)}.hist line{stroke:var(--line)}
.hist text{fill:var(--soft);font:11px system-ui,sans-serif}
.card dl{display:grid;grid-template-columns:auto 1fr auto 1fr;gap:.1rem .6rem;margin:.5rem 0 0;font-size:.875rem}
dt{color:var(--soft)}dd{margin:0;font-variant-numeric:tabular-nums}
footer{padding:2rem 1.25rem;color:var(--soft);font-size:.875rem}
@media(max-width:44rem){.facts th{width:6rem}.row{grid-template-columns:1fr 6rem}.row .bar{display:none}}
@media print{body{background:#fff}.scroll,.card,.tile{break-inside:avoid}}
)";

}  // namespace ferry::tool
