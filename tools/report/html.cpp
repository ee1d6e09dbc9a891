#include "tools/report/html.h"

#include <fmt/format.h>

#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

const std::string_view kReportStyle = R"(
:root{color-scheme:light dark;--back:#fbfbfa;--card:#fff;--text:#1c1e21;--soft:#5a6068;--line:#d9dce0;
--model:#2563a8;--optimizer:#b45f06;--saturation:55%;--light:80%;--stroke:36%;--ink:#16181b}
@media(prefers-color-scheme:dark){:root{--back:#14161a;--card:#1c1f25;--text:#e8eaed;--soft:#a4abb5;--line:#363b44;
--model:#6ea8e6;--optimizer:#e8a45c;--saturation:38%;--light:31%;--stroke:66%;--ink:#f2f4f7}}
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
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));gap:.75rem}
.chart{width:100%;height:auto}.chart text{fill:var(--soft);font:12px system-ui,sans-serif}
.chart .grid{stroke:var(--line);stroke-width:1}.chart .mark{stroke:var(--optimizer);stroke-width:1.5;stroke-dasharray:2 3}
.line{fill:none;stroke:hsl(var(--h) 65% var(--stroke));stroke-width:1.75;stroke-linejoin:round}
.band{fill:hsl(var(--h) 65% var(--stroke));opacity:.22}.dot{fill:hsl(var(--h) 65% var(--stroke))}.at{stroke-width:1;opacity:.7}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.5rem;list-style:none;padding:0;margin:.75rem 0}
.legend svg{display:inline-block;vertical-align:middle;margin-right:.4rem}
.card dl{display:grid;grid-template-columns:auto 1fr auto 1fr;gap:.1rem .6rem;margin:.5rem 0 0;font-size:.875rem}
dt{color:var(--soft)}dd{margin:0;font-variant-numeric:tabular-nums}
footer{padding:2rem 1.25rem;color:var(--soft);font-size:.875rem}
@media(max-width:44rem){.facts th{width:6rem}.row{grid-template-columns:1fr 6rem}.row .bar{display:none}}
@media print{body{background:#fff}.scroll,.card,.tile{break-inside:avoid}}
)";
}  // namespace

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

std::string link_to(std::string_view id, std::string_view name) {
  return fmt::format("<li><a href=\"#{}\">{}</a></li>", id, name);
}

std::string html_page(const HtmlPage& page) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n{}\n<title>{} - ferry report</title>\n<style>{}</style></head>\n"
      "<body><a class=\"skip\" href=\"#{}\">Skip to the report</a>\n<header><h1>{}</h1><p "
      "class=\"soft\">{}</p></header>\n<nav aria-label=\"Sections\"><ul>{}</ul></nav>\n<main>\n{}"
      "</main>\n<footer>Written by ferry report.</footer>\n</body></html>\n",
      kPageMark, page.title, kReportStyle, page.first, page.title, page.subtitle, page.navigation,
      page.main);
}

}  // namespace ferry::tool
