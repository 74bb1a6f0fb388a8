"""Generated programs: syntax trees of both languages, and ways to damage their text."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

from omnigraph.language import query_ast as q
from omnigraph.language import schema_ast as s

T = TypeVar("T")


def opaque(make: Callable[[], st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """A strategy that may refer to later ones and whose description stays short, however large it is."""
    made = cache(make)

    @st.composite
    def program(draw: st.DrawFn) -> T:
        return draw(made())

    return program()


QUERY_KEYWORDS = [
    "query",
    "match",
    "return",
    "order",
    "limit",
    "not",
    "as",
    "asc",
    "desc",
    "insert",
    "update",
    "delete",
    "set",
    "where",
    "contains",
    "starts_with",
    "now",
    "nearest",
    "search",
    "fuzzy",
    "match_text",
    "bm25",
    "rrf",
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "date",
    "datetime",
    "true",
    "false",
]
KEYWORDS = [
    *QUERY_KEYWORDS,
    *[
        "node",
        "edge",
        "interface",
        "implements",
        "enum",
        "key",
        "unique",
        "index",
        "range",
        "check",
        "embed",
        "description",
        "instruction",
        "card",
        "mooredAt",
        "camelCase",
        "x",
        "_",
        "_a1",
    ],
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
names = st.one_of(
    st.sampled_from([word for word in KEYWORDS if word != "_"]),
    st.from_regex(r"[a-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
)
type_names = st.from_regex(r"[A-Z][A-Za-z0-9_]{0,8}", fullmatch=True)
texts = st.text(
    alphabet=st.one_of(
        st.sampled_from('"\\\n\r\t{}[]()$@/*# '), st.characters(exclude_categories=["Cs"]), st.sampled_from("é漢𝄞")
    ),
    max_size=12,
)
integers = st.integers(min_value=0, max_value=2**63 - 1) | st.sampled_from([0, 2**31, 2**53 + 1, 2**63 - 1])
floats = st.floats(min_value=0, allow_nan=False, allow_infinity=False).map(abs)
scalars = st.sampled_from(["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"])

# --- schemas

types = opaque(
    lambda: st.one_of(
        st.builds(s.TypeSyntax, scalars | st.just("Blob"), nullable=st.booleans()),
        st.builds(s.TypeSyntax, scalars, nullable=st.booleans(), is_list=st.just(True)),
        st.builds(
            s.TypeSyntax,
            st.just("String"),
            nullable=st.booleans(),
            enum_values=st.lists(
                st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True), min_size=1, max_size=4, unique=True
            ).map(tuple),
        ),
        st.builds(s.TypeSyntax, st.just("Vector"), nullable=st.booleans(), dimension=st.integers(1, 2**31 - 1)),
    )
)
literals = st.one_of(texts, integers, floats, st.booleans())
annotation_names = names.filter(lambda name: name not in ("card", "key", "unique", "index", "range", "check"))
annotations = opaque(
    lambda: st.one_of(
        st.builds(s.Annotation, names.filter(lambda name: name != "card")),
        st.builds(s.Annotation, annotation_names, literals),
        st.builds(
            s.Annotation,
            annotation_names,
            names.filter(lambda name: name not in ("true", "false")),
            value_is_name=st.just(True),
            kwargs=st.lists(st.tuples(names, literals), max_size=2).map(tuple),
        ),
    )
)
bounds = st.one_of(floats, integers, integers.map(lambda value: -value), floats.filter(bool).map(lambda value: -value))
constraint_arguments = opaque(
    lambda: st.one_of(
        st.builds(s.Name, names.filter(lambda name: name not in ("true", "false"))),
        st.builds(s.Range, bounds, st.none() | bounds),
        st.builds(s.Range, st.none(), bounds),
        st.builds(s.Constant, st.one_of(texts, integers, floats, st.booleans())),
    )
)
constraints = st.builds(
    s.Constraint,
    st.sampled_from(["key", "unique", "index", "range", "check"]),
    st.lists(constraint_arguments, min_size=1, max_size=3).map(tuple),
)
properties = st.builds(s.Property, names, types, st.lists(annotations, max_size=2).map(tuple))
references = st.builds(s.TypeReference, type_names)
cardinalities = st.tuples(integers, st.none() | integers).map(
    lambda pair: s.Cardinality(pair[0], pair[1] if pair[1] is None else max(pair))
)
declarations = opaque(
    lambda: st.one_of(
        st.builds(s.InterfaceDeclaration, type_names, st.lists(properties, max_size=3).map(tuple)),
        st.builds(
            s.NodeDeclaration,
            type_names,
            st.lists(annotations, max_size=2).map(tuple),
            st.lists(references, max_size=2).map(tuple),
            st.lists(properties, max_size=4).map(tuple),
            st.lists(constraints, max_size=2).map(tuple),
        ),
        st.builds(
            s.EdgeDeclaration,
            type_names,
            references,
            references,
            st.none() | cardinalities,
            st.lists(annotations, max_size=2).map(tuple),
            st.lists(properties, max_size=2).map(tuple),
            st.lists(constraints, max_size=2).map(tuple),
        ),
    )
)
schemas = st.lists(declarations, max_size=5).map(lambda items: s.Schema(tuple(items)))

# --- queries

variables = st.builds(q.Variable, names)
accesses = st.builds(q.PropertyAccess, names, names)
plain_literals = st.one_of(
    st.builds(q.Constant, st.one_of(texts, integers, floats, st.booleans())),
    st.builds(q.DateConstant, st.sampled_from(["date", "datetime"]), texts),
)
query_literals = plain_literals | st.builds(q.ListConstant, st.lists(plain_literals, max_size=3).map(tuple))
values = st.one_of(query_literals, variables, st.builds(q.NowCall))
aliases = st.builds(q.Alias, names.filter(lambda name: name not in ("true", "false", "as", "not")))
nearest_calls = st.builds(q.NearestCall, accesses, values | accesses)
bm25_calls = st.builds(q.Bm25Call, accesses | aliases, values)
text_calls = opaque(
    lambda: st.one_of(
        st.builds(q.TextCall, st.sampled_from(["search", "match_text"]), accesses | aliases, values),
        st.builds(q.TextCall, st.just("fuzzy"), accesses, values, st.none() | values),
    )
)
ranks = opaque(lambda: nearest_calls | bm25_calls)
unranked = opaque(lambda: st.one_of(accesses, aliases, query_literals, st.builds(q.NowCall), variables))
other_expressions = opaque(
    lambda: st.one_of(
        accesses,
        aliases,
        query_literals,
        st.builds(q.NowCall),
        ranks,
        text_calls,
        st.builds(q.RrfCall, ranks, ranks, st.none() | values),
        st.builds(
            q.AggregateCall,
            st.sampled_from(["count", "sum", "avg", "min", "max"]),
            accesses | variables | query_literals,
        ),
    )
)
expressions = other_expressions | variables
comparisons = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
hops = st.builds(q.Hops, integers, st.none() | integers)
filters = opaque(
    lambda: st.one_of(
        st.builds(
            q.FilterClause, other_expressions, comparisons | st.sampled_from(["contains", "starts_with"]), expressions
        ),
        st.builds(q.FilterClause, variables, comparisons, expressions),
        st.builds(q.FilterClause, variables, st.sampled_from(["contains", "starts_with"]), other_expressions),
    )
)
flat_clauses = opaque(
    lambda: st.one_of(
        st.builds(
            q.Binding, variables, type_names, st.lists(st.builds(q.PropertyMatch, names, values), max_size=3).map(tuple)
        ),
        st.builds(
            q.Traversal,
            variables,
            names.filter(lambda name: name != "not"),
            variables,
            st.none() | variables,
            st.booleans(),
            st.none() | hops,
        ),
        filters,
        text_calls,
    )
)
clauses: st.SearchStrategy[q.Clause] = opaque(lambda: flat_clauses | negations)
negations = st.builds(q.Negation, st.lists(flat_clauses | opaque(lambda: negations), min_size=1, max_size=2).map(tuple))
orderings = opaque(
    lambda: st.one_of(
        st.builds(q.Ordering, nearest_calls),
        st.builds(
            q.Ordering,
            unranked | bm25_calls | text_calls,
            st.sampled_from([None, "asc", "desc"]),
        ),
    )
)
read_bodies = opaque(
    lambda: st.builds(
        q.ReadBody,
        st.lists(clauses, min_size=1, max_size=4).map(tuple),
        st.lists(st.builds(q.Projection, expressions, st.none() | names), min_size=1, max_size=3).map(tuple),
        st.lists(orderings, max_size=2).map(tuple),
        st.none() | integers,
    )
)
assignments = st.lists(st.builds(q.Assignment, names, values), min_size=1, max_size=3).map(tuple)
predicates = st.builds(q.Predicate, names, comparisons, values)
statements = opaque(
    lambda: st.one_of(
        st.builds(q.Insert, type_names, assignments),
        st.builds(q.Update, type_names, assignments, predicates),
        st.builds(q.Delete, type_names, predicates),
    )
)
write_bodies = st.builds(q.WriteBody, st.lists(statements, min_size=1, max_size=3).map(tuple))
parameter_types = types.filter(lambda kind: kind.enum_values is None)
queries = opaque(
    lambda: st.builds(
        q.Query,
        names,
        st.lists(st.builds(q.Parameter, names, parameter_types), max_size=3).map(tuple),
        read_bodies | write_bodies,
        st.none() | texts,
        st.none() | texts,
    )
)
query_files = st.lists(queries, max_size=3, unique_by=lambda query: query.name).map(
    lambda items: q.QueryFile(tuple(items))
)

# --- damage

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z0-9_$.]+|\s+|.', re.DOTALL)
_NOISE = [
    '"',
    "\\",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "$",
    "@",
    "..",
    "->",
    "<",
    ">",
    "=",
    ",",
    "//",
    "/*",
    "*/",
    "-5",
    "#",
]
_NOISE += [
    "9" * 30,
    "1.5",
    "é",
    "\x00",
    "\u2028",
    "\ud800",
    "😀",
    "$v",
    "$v.name",
    "not {",
    "now()",
    "String?",
    "\r\n",
    '"\\q"',
]


def damaged(programs: Sequence[str], count: int, seed: int) -> Iterator[str]:
    """`count` texts: parts of programs cut, doubled, swapped, mixed, or plain noise."""
    source = random.Random(seed)
    pieces = [[match[0] for match in _TOKEN.finditer(program)] for program in programs]
    for _ in range(count):
        tokens = list(source.choice(pieces))
        for _ in range(source.randint(1, 3)):
            _damage(tokens, source, pieces)
        text = "".join(tokens)
        if source.random() < 0.05:
            text = "".join(chr(source.choice([source.randint(0, 127), source.randint(0, 0x2FFF)])) for _ in range(30))
        yield text


def _damage(tokens: list[str], source: random.Random, pieces: list[list[str]]) -> None:
    kind = source.randrange(7)
    at = source.randrange(len(tokens) + 1)
    if kind == 0:
        tokens.insert(at, source.choice(_NOISE))
    elif kind == 1:
        del tokens[at : at + source.randint(1, 4)]
    elif kind == 2:
        tokens[at:at] = tokens[at : at + source.randint(1, 8)]
    elif kind == 3 and at < len(tokens):
        tokens[at] = source.choice(KEYWORDS)
    elif kind == 4:
        other = source.choice(pieces)
        start = source.randrange(len(other) + 1)
        tokens[at:at] = other[start : start + source.randint(1, 10)]
    elif kind == 5 and at < len(tokens):
        word = tokens[at]
        cut = source.randrange(len(word) + 1)
        tokens[at] = word[:cut] + source.choice(_NOISE) + word[cut:]
    else:
        del tokens[at:]
