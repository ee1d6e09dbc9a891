"""Opens what `ferry report` writes in a headless Chromium and measures it there.

    check_report.py FERRY CHECKPOINT [--screenshots DIR]
    check_report.py FERRY LOG... --training [--screenshots DIR]

At widths from a phone's to a large screen's, on light and dark screens: nothing is fetched, nothing is reported on the console, no page
is wider than its window, all text stands out from its background (WCAG AA: 4.5 to 1), every picture and every region that scrolls has
a name. Exit 77 (skipped) where there is no Chromium."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

WIDTHS = [360, 800, 1400]
BROWSERS = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'headless_shell']

# Runs in a page that holds the report in a frame, and leaves what it finds as its text.
HARNESS = r'''<!DOCTYPE html><meta charset="utf-8"><body><script>
const found = [];
function luminance(c) {
  const f = c.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2];
}
const parse = text => (text.match(/[\d.]+/g) || []).map(Number);
const opaque = c => c.length >= 3 && (c.length < 4 || c[3] > 0);
function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}
function background(view, element) {
  if (element.tagName === 'text' && element.previousElementSibling?.tagName === 'rect')
    return parse(view.getComputedStyle(element.previousElementSibling).fill);
  for (let e = element; e; e = e.parentElement) {
    const c = parse(view.getComputedStyle(e).backgroundColor);
    if (opaque(c)) return c;
  }
  return [255, 255, 255];
}
function look(frame, width) {
  const page = frame.contentDocument, view = frame.contentWindow;
  for (const d of page.querySelectorAll('details')) d.open = true;
  if (page.documentElement.scrollWidth > width + 1) found.push(`${width}: page is ${page.documentElement.scrollWidth} wide`);
  let texts = 0, low = 0;
  for (const e of page.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || e.closest('title, caption, .skip')) continue;
    ++texts;
    const style = view.getComputedStyle(e);
    const ink = parse(e.namespaceURI.endsWith('svg') ? style.fill : style.color);
    const ratio = contrast(ink, background(view, e));
    if (ratio < 4.5 && low++ < 3) found.push(`${width}: contrast ${ratio.toFixed(2)} of "${e.textContent.slice(0, 40)}" (${e.tagName} ${e.className})`);
  }
  for (const e of page.querySelectorAll('svg, .scroll[tabindex], nav'))
    if (!e.getAttribute('aria-label')) found.push(`${width}: a ${e.tagName} without a name`);
  for (const e of page.querySelectorAll('nav a'))
    if (!page.querySelector(e.getAttribute('href'))) found.push(`${width}: a link leads nowhere: ${e.href}`);
  for (const e of page.querySelectorAll('table')) if (!e.caption) found.push(`${width}: a table without caption`);
  const outside = [...page.querySelectorAll('[src], link, script, iframe, object, image, use')].length;
  if (outside) found.push(`${width}: ${outside} elements from elsewhere`);
  return {width, texts, cells: page.querySelectorAll('.map rect').length, bars: page.querySelectorAll('.hist path').length,
          lines: page.querySelectorAll('.chart .line').length,
          height: page.documentElement.scrollHeight, dark: view.matchMedia('(prefers-color-scheme: dark)').matches};
}
async function main() {
  const seen = [];
  for (const width of WIDTHS) {
    const frame = document.createElement('iframe');
    frame.width = width; frame.height = 900; frame.src = PAGE;
    await new Promise(r => { frame.onload = r; document.body.append(frame); });
    seen.push(look(frame, width));
    frame.remove();
  }
  document.body.textContent = '{{' + JSON.stringify({found, seen}) + '}}';
}
main().catch(e => document.body.textContent = '{{' + JSON.stringify({found: ['script: ' + e], seen: []}) + '}}');
</script>'''


def browse(browser, url, *options):
    command = [browser, '--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--disable-extensions', '--no-first-run',
               '--allow-file-access-from-files', '--proxy-server=127.0.0.1:9', '--enable-logging=stderr', '--virtual-time-budget=30000',
               *options, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    return done.stdout, [line for line in done.stderr.splitlines() if 'CONSOLE' in line]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('ferry')
    parser.add_argument('paths', nargs='+')
    parser.add_argument('--training', action='store_true')
    parser.add_argument('--histograms', default='*norm*')
    parser.add_argument('--screenshots')
    flags = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        print('skipped: no Chromium here (Debian: apt-get install chromium)')
        sys.exit(77)
    with tempfile.TemporaryDirectory() as work:
        page, harness = f'{work}/report.html', f'{work}/harness.html'
        what = ['--training'] if flags.training else ['--histograms', flags.histograms]
        subprocess.run([flags.ferry, 'report', *flags.paths, '-o', page, *what], check=True)
        with open(harness, 'w') as f:
            f.write(HARNESS.replace('WIDTHS', json.dumps(WIDTHS)).replace('PAGE', json.dumps('file://' + page)))
        failed = 0
        for scheme, setting in ('light', 1), ('dark', 0):
            scheme_option = f'--blink-settings=preferredColorScheme={setting}'
            text, console = browse(browser, 'file://' + harness, scheme_option, '--dump-dom')
            result = json.loads(re.search(r'\{\{(.*)\}\}', text, re.S)[1].replace('&amp;', '&').replace('&gt;', '>').replace('&lt;', '<'))
            wrong = result['found'] + console
            wrong += [f'the screen is not {scheme}'] if any(s['dark'] != (scheme == 'dark') for s in result['seen']) else []
            drawn = ['lines'] if flags.training else ['cells', 'bars']
            wrong += [f'no {kind} are drawn' for kind in drawn if not all(s[kind] for s in result['seen'])]
            wrong += ['not all widths were seen'] if len(result['seen']) != len(WIDTHS) else []
            failed += len(wrong)
            print(f'{scheme}: {result["seen"]}')
            for line in wrong:
                print('    ' + line)
            if flags.screenshots:
                os.makedirs(flags.screenshots, exist_ok=True)
                for width in WIDTHS:
                    browse(browser, 'file://' + page, scheme_option, f'--window-size={width},{2400}',
                           f'--screenshot={flags.screenshots}/{scheme}-{width}.png')
    sys.exit(failed > 0)


main()
