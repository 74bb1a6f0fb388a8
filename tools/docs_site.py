"""What the documentation site has besides the files below docs/, for `mkdocs build`.

The files at the root of the repository are pages too, and links to them, which are right in the repository, are turned
into links of the site. Schemas and queries get their colours from the grammars for editors. A built page that would
fetch something from the network is refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pygments.lexers
import pygments.token
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pygments.lexer import Lexer, RegexLexer

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
EXAMPLES = ("community.pg", "community.gq")
FOLDERS = {"docs/guide": "guide/schema.md", "docs/decisions": "decisions/README.md"}
"""Links to a folder, and the page that opens instead."""
COLOURS = {
    "comment": pygments.token.Comment,
    "string": pygments.token.String,
    "constant.numeric": pygments.token.Number,
    "constant": pygments.token.Keyword.Constant,
    "keyword.operator.word": pygments.token.Operator.Word,
    "keyword.operator": pygments.token.Operator,
    "keyword": pygments.token.Keyword,
    "support.function": pygments.token.Name.Function,
    "storage.type": pygments.token.Keyword.Type,
    "entity.name.type": pygments.token.Name.Class,
    "entity.name.tag": pygments.token.Name.Decorator,
    "variable.other.property": pygments.token.Name.Attribute,
    "variable": pygments.token.Name.Variable,
}
"""Beginnings of the scopes of an editor's grammar, and the token of each; the first that fits counts."""
_LINK = re.compile(r"\]\((?!https?://|#)([^)]+)\)")
_FETCHED = re.compile(
    r"""<(?:script|img|iframe)[^>]+src=["']?https?:|<link[^>]+rel=["']?(?:stylesheet|preload|preconnect)[^>]+https?:|@import|url\(["']?https?:"""
)


def lexer(language: str) -> type[Lexer]:
    """What colours one of our languages, made from its grammar for editors."""
    grammar = json.loads((ROOT / "editors" / f"{language}.tmLanguage.json").read_text(encoding="utf-8"))
    rules = [
        (rule["match"] if "match" in rule else rf"{rule['begin']}(?:\\.|[^\\])*?{rule['end']}", _token(rule["name"]))
        for rule in grammar["patterns"]
    ]
    rest = [(r"\w+", pygments.token.Name), (r"\s+", pygments.token.Whitespace), (r".", pygments.token.Punctuation)]
    return type(
        f"{language}_lexer", (RegexLexer,), {"name": language, "aliases": [language], "tokens": {"root": rules + rest}}
    )


def _token(scope: str) -> Any:
    return next((token for begin, token in COLOURS.items() if scope.startswith(begin)), pygments.token.Text)


def on_startup(**_: Any) -> None:
    """Make our languages known to the highlighter, which looks lexers up by name in the registry of Pygments."""
    for language in ("gq", "pg"):
        pygments.lexers.LEXERS[language] = (__name__, language, (language,), (), ())
        pygments.lexers._lexer_cache[language] = lexer(language)


def on_config(config: Any) -> Any:
    """List the decision records in the navigation, by number."""
    records = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "README.md")
    pages = [f"decisions/{name}" for name in ("README.md", *records)]
    for section in config["nav"]:
        for entries in section.values():
            if isinstance(entries, list):
                entries[:] = [
                    {"Decisions": pages} if entry == {"Decisions": "decisions"} else entry for entry in entries
                ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from the root of the repository, and the example files that pages link to."""
    for source, target in ROOT_PAGES.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    for name in EXAMPLES:
        path = ROOT / "src" / "omnigraph" / "examples" / name
        files.append(File.generated(config, f"examples/{name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that are right in the repository into links of the site; the home page has no list of siblings."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    depth = page.file.src_uri.count("/")
    from_root = page.file.src_uri in ROOT_PAGES.values()
    return _LINK.sub(lambda found: f"]({_target(found.group(1), '../' * depth, from_root=from_root)})", markdown)


def _target(link: str, up: str, *, from_root: bool) -> str:
    """The link as the site has it; `up` leads from the page to the root of the site."""
    examples = f"{'' if from_root else up + '../'}src/omnigraph/examples/"
    if link.startswith(examples):
        return f"{up}examples/{link.removeprefix(examples)}"
    if from_root:
        return FOLDERS.get(link.rstrip("/"), link.removeprefix("docs/"))
    for source, target in ROOT_PAGES.items():
        if link.partition("#")[0] == f"{up}../{source}":
            return link.replace(f"{up}../{source}", f"{up}{target}")
    return link


def on_post_build(config: Any) -> None:
    """Refuse a site whose pages fetch something from the network.

    Raises:
        PluginError: one does; the message names the page and what it fetches.
    """
    site = Path(config["site_dir"])
    for path in sorted([*site.rglob("*.html"), *site.glob("*.css")]):
        found = _FETCHED.search(path.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{path.relative_to(site)} fetches from the network: {found.group(0)}")
