"""Generated programs: syntax trees of both languages, and ways to damage their text."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

from hypothesis import strategies as st
from tests.plain.printer import clause_text, condition_text, expression_text

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


def mostly(common: st.SearchStrategy[Any], nested: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The common one three times of four, so that what holds more of its kind comes to an end.

    `one_of` takes a strategy that is named several times once.
    """
    return st.integers(0, 3).flatmap(lambda number: common if number else nested)


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
    "and",
    "or",
    "in",
    "is",
    "null",
    "ends_with",
    "matches",
    "exists",
    "optional",
    "either",
    "path",
    "shortest",
    "distinct",
    "having",
    "offset",
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
signed = st.one_of(integers, floats, integers.map(lambda value: -value), floats.filter(bool).map(lambda value: -value))
plain_literals = st.one_of(
    st.builds(q.Constant, st.one_of(texts, integers, floats, st.booleans())),
    st.builds(q.DateConstant, st.sampled_from(["date", "datetime"]), texts),
)
signed_literals = plain_literals | st.builds(q.Constant, signed)
lists = st.builds(q.ListConstant, st.lists(signed_literals, max_size=3).map(tuple))
query_literals = plain_literals | lists
values = st.one_of(signed_literals, lists, variables, st.builds(q.Call, st.just("now")))
aliases = st.builds(q.Alias, names.filter(lambda name: name not in ("true", "false")))
leaves = opaque(lambda: st.one_of(accesses, aliases, query_literals, variables))
# No function is called `not`: before a bracket that is a negation.
FUNCTIONS = ["now", "search", "fuzzy", "bm25", "nearest", "rrf", "count", "sum", "lower", "round", "nope", "in"]
calls = opaque(
    lambda: st.builds(
        q.Call, st.sampled_from(FUNCTIONS), st.lists(expressions, min_size=1, max_size=3).map(tuple), st.booleans()
    ).filter(lambda call: not _is_date(call) and not _starts_with_bracket(call))
)
expressions: st.SearchStrategy[q.ExpressionSyntax] = opaque(
    lambda: mostly(
        leaves,
        st.one_of(
            calls,
            st.builds(q.Minus, st.one_of(accesses, variables, calls)),
            st.builds(q.Arithmetic, st.sampled_from(["+", "-", "*", "/", "%"]), expressions, expressions),
        ),
    )
)


def _is_date(call: q.Call) -> bool:
    return call.function in ("date", "datetime")


def _starts_with_bracket(call: q.Call) -> bool:
    """`f(distinct (…))` and `f(distinct -…)` are read as something else; so is an argument that is called distinct."""
    first = expression_text(call.arguments[0])
    return first.startswith("distinct") or (call.distinct and first.startswith(("(", "-")))


comparisons = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
word_operators = st.sampled_from(["contains", "starts_with", "ends_with", "matches", "in"])
hops = st.builds(q.Hops, integers, st.none() | integers)
tests = opaque(
    lambda: st.one_of(
        st.builds(q.Comparison, expressions, comparisons | word_operators, expressions),
        st.builds(q.NullTest, expressions, st.booleans()),
        st.builds(q.Truth, accesses | calls),
    )
)
conditions: st.SearchStrategy[q.ConditionSyntax] = opaque(
    lambda: mostly(
        tests,
        st.one_of(
            st.builds(q.Not, conditions),
            st.builds(q.And, st.lists(conditions, min_size=2, max_size=3).map(tuple)),
            st.builds(q.Or, st.lists(conditions, min_size=2, max_size=3).map(tuple)),
        ),
    ).filter(is_writable)
)


def is_writable(condition: q.ConditionSyntax) -> bool:
    """A bare variable before a word, or a name that reads like an operator, would be read as something else."""
    text = condition_text(condition)
    return not re.match(r"\$[a-z_][A-Za-z0-9_]* [a-z]", text) and not re.search(r"\bnot\b", _without_not(condition))


def _without_not(condition: q.ConditionSyntax) -> str:
    """The text of a condition without the negations it means."""
    match condition:
        case q.Not(condition=inner):
            return _without_not(inner)
        case q.And(parts=parts) | q.Or(parts=parts):
            return " ".join(map(_without_not, parts))
        case q.NullTest(operand=operand):
            return expression_text(operand)
    return condition_text(condition)


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
        st.builds(
            q.ShortestPath,
            variables,
            variables,
            names.filter(lambda name: name != "not"),
            variables,
            hops,
            st.booleans(),
        ),
        conditions,
    )
)
clauses: st.SearchStrategy[q.Clause] = opaque(lambda: mostly(flat_clauses, blocks))
clause_lists = opaque(lambda: st.lists(clauses, min_size=1, max_size=3).map(tuple).filter(are_apart))
blocks = opaque(
    lambda: st.one_of(
        st.builds(q.Negation, clause_lists),
        st.builds(q.Exists, clause_lists),
        st.builds(q.Optional, clause_lists),
        st.builds(q.Either, st.lists(clause_lists, min_size=1, max_size=3).map(tuple)),
    )
)


def are_apart(clauses: Sequence[q.Clause | q.ConditionSyntax]) -> bool:
    """Whether no clause would be read as the continuation of the one before it."""
    texts = [clause_text(clause) for clause in clauses]
    for before, after in pairwise(texts):
        if after.startswith(("-", "(", "[", "<")) or re.match(_CONTINUES, after) or before.endswith(" not"):
            return False
    return True


_CONTINUES = r"(and|or|in|is|contains|starts_with|ends_with|matches|not)\b(?! \{)"
orderings = opaque(
    lambda: st.one_of(
        st.builds(q.Ordering, expressions.filter(lambda e: not (isinstance(e, q.Call) and e.function == "nearest"))),
        st.builds(q.Ordering, accesses | aliases, st.sampled_from([None, "asc", "desc"])),
    )
)
counts = opaque(lambda: st.one_of(st.none(), integers, variables))
read_bodies = opaque(
    lambda: st.builds(
        q.ReadBody,
        clause_lists,
        st.lists(st.builds(q.Projection, expressions, st.none() | names), min_size=1, max_size=3)
        .map(tuple)
        .filter(_projections_are_apart),
        st.lists(orderings, max_size=2).map(tuple),
        counts,
        st.booleans(),
        st.lists(conditions, max_size=2).map(tuple).filter(are_apart),
        counts,
    )
)


def _projections_are_apart(projections: Sequence[q.Projection]) -> bool:
    """A name directly before a bracket would be called; commas keep everything else apart."""
    return not any(isinstance(each.expression, q.AllProperties) for each in projections)


# Conditions and expressions have their own tests; here they are small, for statements hold many of them.
bare = st.builds(q.Alias, st.sampled_from(["age", "id", "from", "in", "or", "where", "set", "as", "optional", "null"]))
small = opaque(
    lambda: st.one_of(
        accesses,
        bare,
        query_literals,
        variables,
        st.builds(q.Call, st.sampled_from(["lower", "coalesce"]), st.lists(bare, min_size=1, max_size=2).map(tuple)),
        st.builds(q.Minus, accesses | variables),
        st.builds(q.Arithmetic, st.sampled_from(["+", "-", "*", "/", "%"]), accesses | bare, bare),
    )
)
small_tests = opaque(
    lambda: st.one_of(
        st.builds(q.Comparison, accesses | bare, comparisons | word_operators, small),
        st.builds(q.NullTest, accesses | bare, st.booleans()),
        st.builds(q.Truth, st.just(q.Constant(True))),
    )
)
wheres = opaque(
    lambda: st.one_of(
        st.none(), small_tests, st.builds(q.Or, st.tuples(small_tests, small_tests)), st.builds(q.Not, small_tests)
    )
)
assignments = opaque(lambda: st.lists(st.builds(q.Assignment, names, small), min_size=1, max_size=2).map(tuple))
targets = opaque(lambda: type_names | variables)
bound = opaque(lambda: st.none() | variables)
statements = opaque(
    lambda: st.one_of(
        st.builds(q.Insert, type_names, assignments, bound),
        st.builds(q.Update, targets, assignments, wheres, bound),
        st.builds(q.Delete, targets, wheres),
    )
)
write_bodies = opaque(
    lambda: st.builds(
        q.WriteBody,
        st.lists(statements, min_size=1, max_size=2).map(tuple),
        st.just(()) | st.lists(st.builds(q.Binding, variables, type_names), min_size=1, max_size=2).map(tuple),
        st.just(()) | st.lists(st.builds(q.Projection, small, st.none() | names), min_size=1, max_size=2).map(tuple),
    )
)
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
