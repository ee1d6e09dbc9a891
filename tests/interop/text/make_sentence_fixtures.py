#!/usr/bin/env python3
"""make_sentence_fixtures.py OUT [TEXTS [CASES]]: what NLTK's Punkt makes of texts, for tests/text/sentences_test.cpp.

Trains Punkt on the plain text files of the folder TEXTS (default /usr/share/perl, whose documentation has many sentences), writes its parameters as a folder of punkt_tab has
them to OUT/made_up, and to OUT/cases.json made-up texts with their sentences: as PunktSentenceTokenizer divides them, and as preprocess_data.py --keep-newlines has it."""
import glob
import json
import os
import random
import re
import sys

from nltk.tabdata import TabEncoder
from nltk.tokenize.punkt import PunktLanguageVars, PunktSentenceTokenizer, PunktTrainer


class WithNewlines(PunktLanguageVars):
    """Candidates with the white space behind them, as Megatron-LM's preprocess_data.py has it."""
    _period_context_fmt = r"\S*%(SentEndChars)s\s*(?=(?P<after_tok>%(NonWord)s|(?P<next_tok>\S+)))"


PIECES = ['Dr. Smith', 'e.g.', 'i.e. ', 'Inc.', 'U.S.', ' J. S. Bach ', 'etc.', ' No. 5 ', '3.14', ' 1. ', '12. March', ' the', ' The', ' perl', ' Perl', ' it', ' It', ' See', ' see', '.', '. ', '.  ', '.\n', '.\n\n', '!',
          '! ', '?', '?! ', '!!! ', '...', '... ', '. . . ', '. . . . ', '.. ', ' ', '\n', '\n\n', '\t', '\u00a0', '\u3000', '\x1c', '\x0b', '"', '." ', '.) ', ".' ", '.\u201d ', '\u00bb', '(', ')', '[1].', '--', '.--', '---', ',', ', ',
          ';', ': ', '-', 'word-etc.', '#5.', '&c.', '@x.', 'a.b.c.', 'A.', ' b.', '_.', '\u00b2.', '\u0130.', '\u03a3\u03a3.', ' \u00dcber', ' \u00fcber', '\u65e5\u672c\u3002', '\U0001f642.', '\u0661.', '-5.', '-.5.', ',5', '5,000.', '1-2.', ' ##number##',
          '\u01c5', ' \u2160. ', 'x' * 30, "it's", '*', '{', '}.', '`', '\u2018a.\u2019 B']


def training_text(folder, most):
    found, size = [], 0
    for path in sorted(glob.glob(f'{folder}/**/*.pod', recursive=True)):
        text = open(os.path.realpath(path), encoding='utf-8', errors='ignore').read()
        text = '\n'.join(line for line in text.split('\n') if not re.match(r'[\s=]', line or ' ') or not line.strip())
        found.append(text)
        size += len(text)
        if size > most:
            break
    return '\n'.join(found)[:most]


def train(folder, most):
    trainer = PunktTrainer()
    trainer.INCLUDE_ALL_COLLOCS = True
    trainer.train(training_text(folder, most))
    return trainer.get_params()


def write_parameters(parameters, folder):
    """The files of punkt_tab, sorted."""
    os.makedirs(folder, exist_ok=True)
    tab = TabEncoder()
    for name, text in (('abbrev_types.txt', tab.list2txt(sorted(parameters.abbrev_types))), ('sent_starters.txt', tab.list2txt(sorted(parameters.sent_starters))),
                       ('collocations.tab', tab.tups2tab(sorted(parameters.collocations))), ('ortho_context.tab', tab.ivdict2tab(dict(sorted(parameters.ortho_context.items()))))):
        with open(f'{folder}/{name}', 'w', encoding='utf-8', newline='') as out:
            out.write(text)


def splitters(parameters):
    return PunktSentenceTokenizer(parameters), PunktSentenceTokenizer(parameters, lang_vars=WithNewlines())


def made_up(draw):
    return ''.join(draw.choice(PIECES) if draw.random() < 0.7 else draw.choice([' word', ' Word', ' of', ' In']) for _ in range(draw.randint(0, 40)))


def main():
    out, texts = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else '/usr/share/perl'
    draw = random.Random(7)
    parameters = train(texts, 120_000)
    write_parameters(parameters, f'{out}/made_up')
    plain, kept = splitters(parameters)
    cases = []
    for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 300):
        text = made_up(draw)
        cases.append([text, plain.tokenize(text), kept.tokenize(text)])
    with open(f'{out}/cases.json', 'w') as f:
        f.write('[\n' + ',\n'.join(json.dumps(case) for case in cases) + '\n]\n')


if __name__ == '__main__':
    main()
