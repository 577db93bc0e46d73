#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds comments to sentences: at most 2 % of the comment blocks begin with a fragment, at most 15 lines of comment stand
before a header's first declaration, and a trailing comment has at most eight words.

READMEs are pages: 120 lines of 100 columns (150 the first), 12,000 words together.

usage: check_prose.py ROOT [--list] [FOLDER]...

A sentence is whole if it begins with a verb in the third person ("Returns ...") or has a finite verb outside of its
subordinate clauses; a comment on a value may be a noun phrase. Words decide, without a grammar: some fragments pass,
and a few whole sentences do not. Prints the counts, with --list each offence; returns 1 when a limit is exceeded.
"""
import pathlib
import re
import sys

FOLDERS = ("engine", "collectives", "strategies", "models", "tools", "bench", "test")
MOST_FRAGMENTS, MOST_HEADER_LINES, MOST_TRAILING_WORDS = 0.02, 15, 8
MOST_PAGE_LINES, MOST_FIRST_PAGE_LINES, MOST_COLUMNS, MOST_PAGE_WORDS = 120, 150, 100, 12000

AUXILIARIES = set("""is are was were has have had can cannot may might must will would should shall could does do did
isn't aren't doesn't don't won't can't hasn't haven't let lets need needs""".split())
VERBS = """accept accompany add adopt agree allocate allow alternate answer append apply arrive ask assign assume average
become begin behave belong bind block book bound break bring build call carry cast change check choose clear close
collect combine come compare compile complete compute connect consist contain continue convert copy correspond cost
count cover create cut deal decide declare define delete depend describe destroy detect determine die differ discard
divide double drain draw drop end enter equal erase estimate exceed exchange exclude execute exist expect explain
express extend fail fall feed fetch fill find finish fit follow forget form free get give go grow guarantee halve hand
handle happen have hear help hide hold identify ignore implement include increase indicate inherit initialize insert
invalidate join keep kill know last launch lead learn leave lie limit list listen live load lock lose make map mark
match mean measure meet mention merge mirror miss modify move multiply name need notice number obey occur offer open
order outlive overlap overwrite own pad parse pass pay perform permit pick place plan play poll post precede predict
prefer prepare prevent print produce prove provide publish pull push put queue raise reach read receive record recover
reduce refer refuse register release rely remain remember remove rename repeat replace report represent request require
rescale reset resolve respond restore restrict return reuse round run save say scale search see select send separate
serve set share show shrink shut sign signal simulate sit skip sleep solve sort speak specify spin split stand start
state stay steal stop store stream subtract suffice sum supply support survive suspend swap switch take tell terminate
test throw tie time touch trace train transform translate travel treat trigger try turn undo unite unlock update use
validate vary verify visit wait wake walk want warn watch weigh win work wrap write yield""".split()
# As base forms these are nouns more often than verbs, and so are the third persons behind them.
NOUNS = set("""add answer block book bound break call change check copy cost count cut deal double draw drop end exchange
fit form free hand help hold last launch lead limit list load lock map mark match mean measure meet mirror move name
need notice number offer open order own pad pass place plan play poll post pull push queue read record report request
return reuse round run save scale search set share show signal sign sleep sort spin split stand start state stop store
stream sum supply support swap switch test tie time touch trace train transform travel try turn update use visit wait
walk watch win work wrap write average separate equal complete live close clear lie select
blocks books bounds breaks calls changes copies costs counts cuts ends exchanges forms hands links lists loads locks maps
marks means mirrors names numbers orders owns pads parts places plans polls posts queues reads records reports requests
rounds runs scales searches sets shares signals sleeps sorts splits starts states stops stores streams sums tests times
traces turns updates uses waits walks works writes weights answers""".split())
# Behind one of these words a noun stands.
BEFORE_NOUNS = set("""the a an of its their all and no some these those each every any one other another both in for by
on at with from per this that same""".split())

CLAUSE = re.compile(r"\b(?:that|which|who|whose|whom|where|when|whenever|if|what|how|while|as|until|unless|because|since|"
                    r"than|whether|before|after|though|although|once)\b[^,;:]*", re.IGNORECASE)
SUBORDINATE = re.compile(r"(?:whether|what|who|that|which|how|when|where|why|if|as|once|while|until|since|after|before)\b",
                         re.IGNORECASE)
PREPOSITION = re.compile(r"(?:of|in|by|from|to|with|without|for|between|at|on|behind|besides?|within|under|over|among|"
                         r"through|into|than|per|likewise|also|else|and|or|but|not|null|empty|those|one)\b", re.IGNORECASE)
COMMENT = re.compile(r"\s*//(?!\s*(?:SPDX|NOLINT|clang-format))\s?(.*)")
TRAILING = re.compile(r"[^\"]*\S[^\"]*?\s// (.*)")
NO_VALUE = re.compile(r"\s*(?:class|struct|template|namespace|enum|case|if|for|while|return|\}|$)")


def third_person(verb):
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    if re.search(r"(?:s|x|z|ch|sh|o)$", verb):
        return verb + "es"
    return {"have": "has"}.get(verb, verb + "s")


THIRD_PERSONS = {third_person(verb) for verb in VERBS}
FINITE = AUXILIARIES | THIRD_PERSONS | set(VERBS)


def has_verb(text):
    words = [word.lower() for word in re.findall(r"[A-Za-z']+", text)]
    if any(word in FINITE and word not in NOUNS for word in words):
        return True
    return any(word in NOUNS and before not in BEFORE_NOUNS for before, word in zip(words, words[1:]))


def is_fragment(block, target):
    """`target`: the line of code behind the comment."""
    first = re.split(r"(?<=[.;!?])\s+|:\s*$", " ".join(block))[0].strip()
    words = re.findall(r"[A-Za-z']+", first)
    if not words or (words[0].lower() in THIRD_PERSONS and words[0][0].isupper()):
        return False
    if SUBORDINATE.match(first):
        return not has_verb(CLAUSE.sub(" ", first.partition(",")[2]))
    if has_verb(CLAUSE.sub(" ", first)):
        return False
    return bool(PREPOSITION.match(first) or "(" in target.partition("=")[0] or NO_VALUE.match(target))


def blocks_of(lines):
    """Each comment that stands on lines of its own: its first line's number, its text, and the line behind it."""
    block, begin = [], 0
    for number, line in enumerate([*lines, ""], 1):
        match = COMMENT.match(line)
        if match:
            begin = begin if block else number
            block.append(match[1])
        elif block:
            yield begin, block, line
            block = []


def check(root, folders=FOLDERS):
    """The number of blocks, the fragments among them, and the other offences, a line each."""
    root, count, fragments, long = pathlib.Path(root), 0, [], []
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        name, lines = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8").splitlines()
        for begin, block, target in blocks_of(lines):
            count += 1
            if begin == 2 and path.suffix == ".h" and len(block) > MOST_HEADER_LINES:
                long.append(f"{name}:2: {len(block)} lines of comment, {MOST_HEADER_LINES} are the most")
            if is_fragment(block, target):
                fragments.append(f"{name}:{begin}: a fragment: {' '.join(block)[:80]}")
        for number, line in enumerate(lines, 1):
            match = TRAILING.match(line)
            if match and len(match[1].split()) > MOST_TRAILING_WORDS:
                long.append(f"{name}:{number}: a trailing comment of {len(match[1].split())} words")
    return count, fragments, long


def check_pages(root):
    """The words of all READMEs, and what is too long."""
    words, long = 0, []
    top = pathlib.Path(root)
    for path in [top / "README.md", *(path for folder in FOLDERS for path in sorted((top / folder).glob("**/README.md")))]:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        words += sum(len(line.split()) for line in lines)
        name = path.relative_to(top)
        if len(lines) > (MOST_FIRST_PAGE_LINES if path.parent == top else MOST_PAGE_LINES):
            long.append(f"{name}: {len(lines)} lines; what headers or --help can say goes there")
        long += [f"{name}:{at}: {len(line)} columns" for at, line in enumerate(lines, 1) if len(line) > MOST_COLUMNS]
    if words > MOST_PAGE_WORDS:
        long.append(f"all READMEs: {words} words of {MOST_PAGE_WORDS}")
    return words, long


def main(arguments):
    listed = "--list" in arguments
    root, *folders = [argument for argument in arguments if argument != "--list"] or [""]
    if not (pathlib.Path(root) / "engine").is_dir():
        print("usage: check_prose.py ROOT [--list] [FOLDER]... (ROOT is the folder that holds engine/)")
        return 2
    count, fragments, long = check(root, folders or FOLDERS)
    words, pages = check_pages(root)
    long += pages
    wrong = len(fragments) > MOST_FRAGMENTS * count
    for offence in (fragments if listed or wrong else []) + long:
        print(offence)
    print(f"{len(fragments)} of {count} comment blocks begin with a fragment ({len(fragments) / max(1, count):.1%}); READMEs have {words:,} words")
    return 1 if wrong or long else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
