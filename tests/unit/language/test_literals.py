"""Strings, numbers and names in both languages."""

import pytest
from tests.property.programs import QUERY_KEYWORDS as KEYWORDS

from omnigraph.errors import ParseError
from omnigraph.language import parse_query_file, parse_schema, query_ast, schema_ast
from omnigraph.language.literals import float_text, string_text


def constant(text: str) -> object:
    query = parse_query_file(f"query q() {{ match {{ $v.x = {text} }} return {{ $v }} }}").queries[0]
    assert isinstance(query.body, query_ast.ReadBody)
    clause = query.body.match[0]
    assert isinstance(clause, query_ast.Comparison)
    assert isinstance(clause.right, query_ast.Constant)
    return clause.right.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\"b\\c\nd\re\tf"', 'a"b\\c\nd\re\tf'),
        ('"two\nlines"', "two\nlines"),
        ('"Ωmega 漢字 😀 \u2028"', "Ωmega 漢字 😀 \u2028"),
        ('"// not a comment /* nor this */"', "// not a comment /* nor this */"),
        ('""', ""),
        ("9223372036854775807", 2**63 - 1),
        ("0", 0),
        ("00012", 12),
        ("3.5", 3.5),
        ("007.250", 7.25),
        ("true", True),
        ("false", False),
    ],
)
def test_a_literal_has_its_value(text: str, value: object) -> None:
    assert constant(text) == value
    assert type(constant(text)) is type(value)


@pytest.mark.parametrize("text", ["9223372036854775808", "9" * 5_000, "1e5", "1_000", ".5", "5.", "+1", "0x10"])
def test_other_numbers_are_parse_errors(text: str) -> None:
    with pytest.raises(ParseError):
        constant(text)


@pytest.mark.parametrize("text", [r'"\q"', r'"\u0041"', r'"\x41"', '"\\\n"', r'"\'"'])
def test_other_escapes_are_parse_errors(text: str) -> None:
    with pytest.raises(ParseError, match="unsupported escape sequence"):
        constant(text)


def test_a_float_beyond_64_bits_is_a_parse_error() -> None:
    with pytest.raises(ParseError, match="too large"):
        constant("9" * 400 + ".0")


@pytest.mark.parametrize("value", [0.0, 1e-320, 1e22, 1.5, 123456.789, 5e-324, 1.7976931348623157e308])
def test_float_text_reads_back_as_the_same_value(value: float) -> None:
    assert constant(float_text(value)) == value


def test_string_text_reads_back_as_the_same_value() -> None:
    value = 'quote " backslash \\ newline \n return \r tab \t bell \x07 é'
    assert constant(string_text(value)) == value


@pytest.mark.parametrize("word", KEYWORDS)
def test_a_keyword_may_name_a_property_a_parameter_and_a_query(word: str) -> None:
    text = (
        f"query {word}(${word}: String) {{ match {{ ${word}2: A {{ {word}: ${word}, {word}: 1 }} ${word}2.{word} = 1 }}"
        f" return {{ ${word}2.{word} as {word} }} }}"
        f" query {word}2() {{ insert A {{ {word}: 1 {word}: 2 }} update A set {{ {word}: 1 }} where {word} = 2 }}"
    )
    first, second = parse_query_file(text).queries
    assert (first.name, first.parameters[0].name) == (word, word)
    assert isinstance(second.body, query_ast.WriteBody)
    assert [a.property for a in second.body.statements[0].assignments] == [word, word]  # type: ignore[union-attr]


@pytest.mark.parametrize("word", [word for word in KEYWORDS if word not in ("not", "true", "false")])
def test_a_keyword_may_name_an_edge_and_an_alias(word: str) -> None:
    text = f"query q() {{ match {{ $a {word} $b $a <{word}> $b }} return {{ $a as {word} }} order {{ {word} }} }}"
    body = parse_query_file(text).queries[0].body
    assert isinstance(body, query_ast.ReadBody)
    assert [clause.edge_name for clause in body.match] == [word, word]  # type: ignore[union-attr]
    assert body.order[0].expression == query_ast.Alias(word)


@pytest.mark.parametrize(
    "word",
    ["node", "edge", "interface", "implements", "enum", "key", "unique", "index", "range", "check", "card", "embed"],
)
def test_a_keyword_may_name_a_property_of_a_schema(word: str) -> None:
    text = f"node A {{ x: I32 @index {word}: String {word}2: I32? @key(x) }} edge E: A -> A @note {{ {word}: I32 }}"
    node, edge = parse_schema(text).declarations
    assert isinstance(node, schema_ast.NodeDeclaration)
    assert isinstance(edge, schema_ast.EdgeDeclaration)
    assert [prop.name for prop in node.properties] == ["x", word, f"{word}2"]
    assert edge.properties[0].name == word


def test_names_keep_their_capitals() -> None:
    node = parse_schema("node HTTPServer2_x { camelCase: String _under: I32 aB9_: Bool }").declarations[0]
    assert node.name == "HTTPServer2_x"
    assert isinstance(node, schema_ast.NodeDeclaration)
    assert [prop.name for prop in node.properties] == ["camelCase", "_under", "aB9_"]


@pytest.mark.parametrize("text", ["node Ä { }", "node A { é: String }", "node A { a‿b: String }", "node A\u00a0{ }"])
def test_names_and_spaces_are_ascii(text: str) -> None:
    with pytest.raises(ParseError):
        parse_schema(text)


def test_enum_values_may_begin_with_digits_capitals_and_dashes() -> None:
    node = parse_schema("node A { e: enum(2nd, -x, B-1, true, enum)? }").declarations[0]
    assert isinstance(node, schema_ast.NodeDeclaration)
    assert node.properties[0].type.enum_values == ("2nd", "-x", "B-1", "true", "enum")


def test_comments_and_spaces_stand_between_any_two_tokens() -> None:
    text = "node/* a */A // b\n{ a /**/ : /* c\n */ String /* ? */ ? @ key /* d */ ( a ) }"
    node = parse_schema(text).declarations[0]
    assert isinstance(node, schema_ast.NodeDeclaration)
    assert node.properties[0].type.nullable
    assert node.constraints[0].name == "key"


def test_an_empty_source_is_fine_in_both_languages() -> None:
    assert parse_schema(" // nothing\n").declarations == ()
    assert parse_query_file("").queries == ()


def test_two_queries_of_one_name_are_a_parse_error() -> None:
    one = "query q() { match { $v: A } return { $v } }"
    with pytest.raises(ParseError, match="declared twice"):
        parse_query_file(one + one)


def test_a_note_is_given_once_and_may_be_empty() -> None:
    text = 'query q() @description("") @instruction("do") { match { $v: A } return { $v } }'
    query = parse_query_file(text).queries[0]
    assert (query.description, query.instruction) == ("", "do")
    with pytest.raises(ParseError, match="given twice"):
        parse_query_file(text.replace("@instruction", "@description"))


def test_a_list_parameter_contains_a_literal_or_a_property_but_a_variable_is_a_traversal() -> None:
    text = 'query q($l: [String]) { match { $l contains "x" $l contains $v.p $l contains $v } return { $v } }'
    body = parse_query_file(text).queries[0].body
    assert isinstance(body, query_ast.ReadBody)
    kinds = [type(clause).__name__ for clause in body.match]
    assert kinds == ["Comparison", "Comparison", "Traversal"]
