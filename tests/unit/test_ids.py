"""The names everything is keyed by."""

import re
import time

from omnigraph.ids import new_ulid

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def _number(ulid: str) -> int:
    number = 0
    for letter in ulid:
        number = number * 32 + CROCKFORD.index(letter)
    return number


def test_a_ulid_is_26_letters_of_crockfords_alphabet() -> None:
    assert all(re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", new_ulid()) for _ in range(100))


def test_a_ulid_begins_with_the_milliseconds_of_its_birth() -> None:
    before = time.time_ns() // 1_000_000
    born = _number(new_ulid()) >> 80
    assert before <= born <= time.time_ns() // 1_000_000


def test_no_two_ulids_are_equal_and_all_of_their_random_bits_vary() -> None:
    random = [_number(new_ulid()) & (1 << 80) - 1 for _ in range(2_000)]
    assert len(set(random)) == len(random)
    ones = zeros = 0
    for number in random:
        ones |= number
        zeros |= ~number & (1 << 80) - 1
    assert ones == zeros == (1 << 80) - 1
