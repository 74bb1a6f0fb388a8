"""Pointing at a place in a text."""

import pytest

from omnigraph.errors import ParseError
from omnigraph.language import parse_query_file, parse_schema
from omnigraph.language.source import Source, Span


def test_spans_count_bytes_and_columns_count_characters() -> None:
    place = Source('é漢 = "x"').locate(Span(3, 4))
    assert (place.start, place.end) == (6, 7)
    assert (place.line, place.column) == (1, 4)


def test_a_span_at_the_end_of_the_text_is_still_one_byte_wide() -> None:
    place = Source("ab\n").locate(Span(3, 3))
    assert (place.start, place.end, place.line, place.column) == (3, 4, 2, 1)


def test_lines_are_counted_across_windows_line_ends() -> None:
    with pytest.raises(ParseError) as caught:
        parse_schema("node A {\r\n    a: Strin\r\n}")
    assert caught.value.span is not None
    assert (caught.value.span.line, caught.value.span.column) == (2, 8)
    assert "\r" not in caught.value.message


def test_the_message_shows_the_line_with_a_caret_under_the_mistake() -> None:
    with pytest.raises(ParseError) as caught:
        parse_schema("node A {\n    name String\n}")
    assert caught.value.message == (
        "line 2, column 10: expected ':', found 'String'\n        name String\n             ^^^^^^"
    )


def test_a_very_long_line_is_shown_around_the_mistake() -> None:
    with pytest.raises(ParseError) as caught:
        parse_schema("node A { " + " " * 5_000 + "name String }")
    assert len(caught.value.message) < 400
    assert "name String" in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node A { a: [String }", "expected ']'"),
        ("node A { a: String @index(5) }", "@index takes property names"),
        ("# note", "a comment begins with // or /*"),
        ("/* open", "this comment has no end"),
        ('node A { a: String @description("open) }', "this string has no end"),
        ("edge E: A -> B @card(0..*)", "an open upper bound is written '0..'"),
        ("node A @card(0..1) { }", "right after an edge's target type"),
        ("node A {", "found the end of the text"),
        ("node a { }", "a type name (capital first letter)"),
    ],
)
def test_schema_errors_say_what_was_expected_in_plain_words(text: str, words: str) -> None:
    from omnigraph.catalog.resolve import compile_schema

    with pytest.raises(ParseError) as caught:
        compile_schema(text)
    assert words in caught.value.message
    assert caught.value.span is not None
    assert caught.value.span.end > caught.value.span.start


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("query q() { match { $v.a == 5 } return { $v } }", "equality is written with one '='"),
        ("query q() { match { $v.a <> 5 } return { $v } }", "inequality is written '!='"),
        ("query q() { match { $v.a = 5 && $v.b = 1 } return { $v } }", "write 'and'"),
        ("query q() { match { $v.a = 5 || $v.b = 1 } return { $v } }", "write 'or'"),
        ("query q() { match { $v.a not in [5] } return { $v } }", "write 'not' before what is tested"),
        ("query q() { match { (a)-[:X]->(b) } return { $a } }", "an edge is followed by '$a edgeName $b'"),
        ("query q() { match (a)-[:X]->(b) return { $a } }", "an edge is followed by '$a edgeName $b'"),
        ("MATCH (a)-[:X]->(b) RETURN a", "a query is 'query name() { match { … }"),
        ("SELECT name FROM person", "a query is 'query name() { match { … }"),
        ("match { $v: A } return { $v }", "a query is 'query name() { match { … }"),
        ("CREATE (a:A)", "a node is added by 'query name() { insert Person"),
        ("query q() { match { ($v:A)-[:x]->($w) } return { $v } }", "a node is written '$p: Person', without brackets"),
        ("query q() { match { $v: A } return { $v } LIMIT 3 }", "keywords are written in small letters"),
        ("query q($n: string) { match { $v: A } return { $v } }", "a text is String"),
        ("query q() { match { $v.a = 1e5 } return { $v } }", "a number has no exponent"),
        ("query q() { match { $v.a = 'x' } return { $v } }", "strings are written in double quotes"),
        ("query q() { match { $v. a = 1 } return { $v } }", "no space is allowed around the dot"),
        ("query q() { match { $v: A { a: null } } return { $v } }", "there is no null literal"),
        ("query q() { match { $v: A } return { $v } offset 1 limit 2 }", "limit comes before offset"),
        ("query q() { match { $v: A } return { $v } order by $v.a }", "an order is written 'order {"),
        ("query q() { match { $v: A } return { $v } group by { $v } }", "grouped by everything else"),
        ("query q() { match { $v: A } return { $v } skip 3 }", "rows are left out by 'offset 10'"),
        ("query q() { match { $v: A } return { count(*) as n } }", "count($p) counts rows"),
        ("query q() { match { $v.a in (1, 2) } return { $v } }", "a list is written '[1, 2]'"),
        ("query q() { match { $v: A optional match { $v b $w } } return { $v } }", "write 'optional { … }'"),
        ('query q() { match { $v.a =~ "x" } return { $v } }', "a pattern is tested with 'matches'"),
        ("query q() { match { $v: A } return { $v.a ^ 2 as n } }", "write a product"),
        ("query q() { match { $v: A } return { case when $v.a = 1 then 2 end as n } }", "choose by coalesce(a, b)"),
        ("query q() { match { path $p = shortest $v b $w } return { $p } }", "a path has bounds"),
        ("query q() { match { $v: A } return { $v.a AS b } }", "keywords are written in small letters"),
        ('query q() { update A set { a: 1 } where b like "x" }', "texts are tested with contains"),
        ("query q() { match { $v B $w } return { $v } }", "the name of an edge begins with a small letter"),
        ("query q() { match { $v MOORED_AT $w } return { $v } }", "the name of an edge begins with a small letter"),
        ("query q() { match { $v b*1..3 $w } return { $v } }", "steps are written '$a edgeName{1,3} $b'"),
        ("query q() { match { $v b-> $w } return { $v } }", "without brackets or arrows"),
        ("query q() { match { $v b:$e $w } return { $v } }", "an edge is named in front: '$a $e:edgeName $b'"),
        ("query q() { match { $v $e b $w } return { $v } }", "an edge is named in front: '$a $e:edgeName $b'"),
        ("query q() { match { $v b{3} $w } return { $v } }", "bounds are two numbers, such as {1,3}"),
        ("query q() { match { $v b{1..3} $w } return { $v } }", "bounds are two numbers, such as {1,3}"),
        ("query q() { match { $v: A, $v b $w } return { $v } }", "clauses follow one another without a comma"),
        ("query q() { match { $v: A; $v b $w } return { $v } }", "follow one another without ';'"),
        ("query q() { insert A { a: 1 }; insert A { a: 2 } }", "follow one another without ';'"),
        ("query q() { match { $v: A $v.Name = 1 } return { $v } }", "the name of a property begins with"),
        ("query q() { match { $v: A { Name: 1 } } return { $v } }", "the name of a property begins with"),
        ("query q() { match { $v: A } return { COUNT($v) as n } }", "functions are written in small letters"),
        ("query q() { match { $v: A } return { $v.a } order { $v.a DESC } }", "keywords are written in small letters"),
        ("query q() { match { $v.a is not NULL } return { $v } }", "'null' is written in small letters"),
        ("query q() { match { $v: A return { $v } }", "the match before it has no '}'"),
        ("query q() { match { $v: A } return { $v } limit 3 order { $v } }", "order comes before limit"),
        ("query q { match { $v: A } return { $v } }", "a query is 'query name() { match { … }"),
        ("query q() { merge A { a: 1 } }", "write 'insert Person { … }'"),
        ("query q() { detach delete A where a = 1 }", "write 'delete Person where …'"),
        ("query q() { delete from A where a = 1 }", "write 'delete Person where …'"),
        ("query q() { match { $v: A } set $v.a = 1 }", "write 'update Person set { … } where …'"),
        ("-- all", "a comment begins with //"),
        ("query q() { match { } return { $v } }", "expected"),
        ("queryq() { match { $v: A } return { $v } }", "expected 'query'"),
        ("query q() { delete A where $a }", "a comparison (= != < <= > >=)"),
        ("query q() { match { $v: A } return { $v } limit x }", "an integer"),
        ("query q( ", "found the end of the text"),
    ],
)
def test_query_errors_say_what_was_expected_in_plain_words(text: str, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_query_file(text)
    assert words in caught.value.message
    assert not any(token in caught.value.message for token in ("IDENT", "LBRACE", "TYPE_NAME", "__ANON", "VARIABLE"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CREATE NODE TABLE A(name STRING, PRIMARY KEY(name))", "a type is declared as 'node Person {"),
        ("create table a (name text)", "a type is declared as 'node Person {"),
        ("node A { name: STRING @key }", "a text is String"),
        ("node A { n: INT64 }", "an integer is I32 or I64"),
        ("node A { n: [double] }", "a number with a fraction is F32 or F64"),
        ("node A { n: boolean }", "true and false are Bool"),
        ("node A { n: timestamp }", "a moment is DateTime"),
        ("node A { n: date }", "a day is Date"),
        ("node A { n: String, m: I32 }", "properties follow one another without a sign between them"),
        ("node A { n: String; m: I32 }", "properties follow one another without a sign between them"),
        ("node A { Name: String }", "the name of a property begins with a small letter"),
        ("node A { n: String } edge KNOWS (A -> A)", "a type is declared as 'node Person {"),
    ],
)
def test_schema_errors_know_the_words_of_other_languages(text: str, words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_schema(text)
    assert words in caught.value.message


def test_half_a_character_is_a_parse_error_and_not_a_crash() -> None:
    with pytest.raises(ParseError, match="not valid Unicode") as caught:
        parse_query_file('query q() { match { $v.a = "\ud800" } return { $v } }')
    assert caught.value.span is not None
    assert caught.value.span.start == 28
