from __future__ import annotations

import asyncio
import inspect
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_overloads

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.channel.endpoint import Program, Timing
from tacit.channel.event_loop import complete
from tacit.channel.frames import ChannelError
from tacit.channel.loopback import converse
from tacit.core.errors import DataError, StudyError, TacitError
from tacit.vertical.identifiers import Spelling
from tacit.vertical.psi_options import PSI_DEFAULTS
from tacit.vertical.psi_question import LONGEST, PsiQuestion
from tacit.vertical.terms import Budget, Deal, agree, usual_most

ALICE = pd.DataFrame({"nin": ["007", "8b", "9C", "9c", None], "age": [1, 2, 3, 4, 5]})
BOB = pd.DataFrame({"nin": ["9c ", "x", "007"], "income": [10, 20, 30]})
TABLES = {"alice": ALICE, "bob": BOB}


def test_tables_of_one_process_are_compared() -> None:
    results = tacit.psi(TABLES, "nin", threads=1)
    alice = results["alice"]
    bob = results["bob"]
    assert isinstance(alice, tacit.Intersection)
    assert (alice.party, alice.size) == ("alice", 2)
    assert (alice.total, alice.missing, alice.repeated) == (5, 1, 1)
    assert (bob.party, bob.size) == ("bob", 2)
    assert (bob.total, bob.missing, bob.repeated) == (3, 0, 0)
    assert dict(alice.sizes) == {"alice": 3, "bob": 3}
    joined = list(zip(alice.of(ALICE)["age"], bob.of(BOB)["income"], strict=True))
    assert sorted(joined) == [(1, 30), (3, 10)]
    assert alice.session == bob.session
    assert re.fullmatch("[0-9a-f]{64}", alice.session)
    assert alice.sent > 3 * 32
    assert alice.received > 3 * 32
    assert alice.seconds >= 0


def test_the_same_people_are_found_every_time() -> None:
    for _ in range(3):
        results = tacit.psi(TABLES, "nin", threads=2)
        assert set(results["alice"].rows.tolist()) == {0, 2}
        assert set(results["bob"].rows.tolist()) == {2, 0}


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing_but_the_time(threads: int) -> None:
    people = [str(k) for k in range(10)]
    results = tacit.psi({"alice": people, "bob": people[::-1]}, "id", threads=threads)
    assert (results["alice"].rows + results["bob"].rows == 9).all()
    assert sorted(results["alice"].rows) == list(range(10))


def test_files_are_read_as_they_are_written(tmp_path: Path) -> None:
    ALICE.to_csv(tmp_path / "a.csv", index=False)
    ALICE.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    ALICE.to_csv(tmp_path / "semicolon.csv", index=False, sep=";")
    ALICE.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.tsv", "semicolon.csv", "a.parquet"):
        for file in (tmp_path / name, str(tmp_path / name)):
            results = tacit.psi({"alice": file, "bob": BOB}, "nin", threads=1)
            assert sorted(results["alice"].rows) == [0, 2], name
            assert (results["alice"].missing, results["alice"].repeated) == (1, 1)


def test_several_columns_identify_together() -> None:
    table_a = pd.DataFrame({"name": ["Ana", "Ana", "Bo"], "born": ["1990", "1991", "1990"]})
    table_b = pd.DataFrame({"born": [1991, 1990], "name": ["ANA", "bo"]})
    tables = {"a": table_a, "b": table_b}
    results = tacit.psi(tables, ["name", "born"])
    assert sorted(zip(results["a"].rows, results["b"].rows, strict=True)) == [(1, 0), (2, 1)]
    assert tacit.psi(tables, ["born"])["a"].size == 2


def test_lists_and_series_go_by_the_name_of_the_key() -> None:
    results = tacit.psi(
        {"a": ["x", "y"], "b": pd.Series(["y"], index=[7]), "c": np.array(["y", "z"])}, "id"
    )
    assert [result.rows.tolist() for result in results.values()] == [[1], [0], [0]]


def test_rows_are_those_of_the_table_and_not_of_the_identifiers_in_it() -> None:
    table = pd.DataFrame({"nin": [None, "x", "x", "9c"], "age": [1, 2, 3, 4]}, index=[3, 2, 1, 0])
    alice = tacit.psi({"alice": table, "bob": BOB}, "nin")["alice"]
    assert sorted(alice.rows) == [1, 3]
    assert sorted(alice.of(table)["age"]) == [2, 4]


def test_zeros_that_lead_in_a_file_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("nin\n007\n08\n")
    assert tacit.psi({"a": tmp_path / "a.csv", "b": ["7", "08"]}, "nin")["b"].rows.tolist() == [1]


def test_bytes_are_counted_in_each_direction() -> None:
    results = tacit.psi({"alice": ["x"], "bob": [str(k) for k in range(100)]}, "id", learns="alice")
    assert results["alice"].sent < 100 * 32 < results["alice"].received
    assert results["bob"].received < 100 * 32 < results["bob"].sent


def test_rows_are_taken_from_the_table_that_was_compared_and_no_other() -> None:
    alice = tacit.psi({"alice": ALICE.set_index("age", drop=False), "bob": BOB}, "nin")["alice"]
    assert sorted(alice.of(ALICE)["nin"]) == ["007", "9C"]
    assert alice.of(ALICE["nin"]).tolist() == alice.of(ALICE)["nin"].tolist()
    with pytest.raises(DataError, match=r"^the table has 4 rows, and the one that was compared 5$"):
        alice.of(ALICE[:4])
    unlearnt = tacit.psi(TABLES, "nin", learns="bob")["alice"]
    assert (unlearnt.size, unlearnt.rows) == (None, None)
    with pytest.raises(StudyError, match=r"^alice has not learnt which of its rows the other"):
        unlearnt.of(ALICE)


def test_spelling_is_a_setting() -> None:
    for spelling in ({"case": "keep"}, Spelling(case="keep")):
        results = tacit.psi(TABLES, "nin", spelling=spelling)
        assert (results["alice"].size, results["alice"].repeated) == (2, 0)
        assert sorted(results["alice"].rows) == [0, 3]


def test_it_works_in_a_notebook_whose_loop_is_running() -> None:
    async def cell() -> Any:
        return tacit.psi(TABLES, "nin", threads=1)

    assert asyncio.run(cell())["bob"].size == 2


def test_the_result_does_not_show_rows() -> None:
    text = repr(tacit.psi({"alice": ["secret", "x"], "bob": ["secret"]}, "nin")["alice"])
    assert "rows" not in text
    assert "secret" not in text


def test_data_are_left_as_they_were() -> None:
    before = ALICE.copy()
    tacit.psi({"alice": ALICE, "bob": BOB}, "nin")
    pd.testing.assert_frame_equal(ALICE, before)


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ({}, {}, "an intersection needs two parties or more, got none"),
        ({"alice": ALICE}, {}, "an intersection needs two parties or more, got alice"),
        (ALICE, {}, 'name yourself: party="alice"; or give {name: table, ...}'),
        ({1: ALICE, 2: BOB}, {}, "name yourself"),
        (TABLES, {"listen": "localhost:7000"}, "name yourself"),
        (TABLES, {"others": ["bob"]}, "name yourself"),
        (TABLES, {"group": "ristreto255"}, "did you mean ristretto255?"),
        (TABLES, {"group": 5}, "group: expected a name"),
        (TABLES, {"spelling": {"case": "up"}}, "case: expected fold or keep, got 'up'"),
        (TABLES, {"spelling": {"cas": "fold"}}, "did you mean case?"),
        (TABLES, {"spelling": "nfc"}, "spelling: expected settings such as"),
        (
            TABLES,
            {"learns": "carol"},
            "'carol' cannot learn the result: the parties are alice, bob",
        ),
        (TABLES, {"learns": ["alice"]}, "cannot learn the result"),
        (TABLES, {"key": "nif"}, "alice: there is no column 'nif'; did you mean nin?"),
        (TABLES, {"key": ["nin", "age"]}, "bob: there is no column 'age'"),
        (TABLES, {"key": []}, "key: expected a column's name or several, got []"),
        (TABLES, {"key": ""}, "key: expected a column's name or several"),
        (TABLES, {"key": [""]}, "key: expected a column's name or several"),
        (TABLES, {"key": [7]}, "key: expected a column's name or several"),
        (TABLES, {"column": 5}, "column: expected a word for what is compared"),
        (TABLES, {"column": "ü" * (LONGEST // 2 + 1)}, "is too long a name for what is compared"),
        (TABLES, {"threads": 0}, "threads: expected 1 or more, got 0"),
        (TABLES, {"threads": "two"}, "threads: expected a whole number, got 'two'"),
        ({"alice": "nowhere.csv", "bob": BOB}, {}, "alice: nowhere.csv does not exist"),
        ({"alice": None, "bob": BOB}, {}, "alice: expected a table, or a list of identifiers"),
        ({"alice": [True], "bob": BOB}, {}, "alice: nin holds true and false"),
        (
            ALICE,
            {"party": "alice", "group": "thesis"},
            "thesis is not secure, so it stays in one process",
        ),
        (ALICE, {"party": "alice", "consortium": "nowhere.yaml"}, "nowhere.yaml"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_compared_is_one_line(data: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(tacit.TacitError) as raised:
        tacit.psi(data, **{"key": "nin", **options})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_signature_shows_every_option() -> None:
    parameters = inspect.signature(tacit.psi).parameters
    options = dict(list(parameters.items())[3:])
    assert list(parameters)[:3] == ["data", "key", "party"]
    assert {name: option.default for name, option in options.items()} == PSI_DEFAULTS
    assert options["most"].annotation == "int | None"
    assert all(f"`{name}`" in str(tacit.psi.__doc__) for name in parameters)


def test_the_patience_is_that_of_the_channel() -> None:
    assert PSI_DEFAULTS["patience"] == Timing.away


def test_a_party_gets_one_result_and_a_try_out_a_result_for_each() -> None:
    results = [inspect.signature(each).return_annotation for each in get_overloads(tacit.psi)]
    assert results == ["Intersection", "dict[str, Intersection]"]


def test_an_option_that_does_not_exist_gets_a_suggestion() -> None:
    with pytest.raises(TypeError, match=r"^psi\(\) got .* 'listn'; did you mean listen\?$"):
        tacit.psi(TABLES, "nin", listn="localhost:7000")  # type: ignore[call-overload]


def test_the_longest_name_for_what_is_compared_will_do() -> None:
    assert tacit.psi(TABLES, "nin", column="n" * LONGEST)["bob"].size == 2
    assert tacit.psi(TABLES, "nin", column="n\ud800\n")["bob"].size == 2


def test_a_peer_may_bring_no_more_in_all_attempts_together() -> None:
    budget = Budget(10)
    bring(budget, "bob", 6)
    bring(budget, "carol", 10)
    with pytest.raises(
        ChannelError,
        match=r"^bob brings 5 identifiers, after 6 in attempts of the last day that did not "
        r"complete; alice brings 3 and accepts at most 10 in all; if this is right, alice "
        r"can allow 11$",
    ) as refused:
        bring(budget, "bob", 5)
    assert refused.value.parameters == ("most",)
    with pytest.raises(ChannelError, match=r"^bob brings 11 identifiers; alice brings 3 and accep"):
        bring(Budget(10), "bob", 11)
    with pytest.raises(ChannelError, match=r"^bob brings 4 identifiers, after 7 in attempts of"):
        bring(Budget(10, {"bob": 7}), "bob", 4)


def bring(budget: Budget, peer: str, size: int) -> None:
    """A peer's set for alice, who brings 3."""
    budget.hear(peer, size)
    budget.spend("alice", 3, peer)


def test_a_peer_may_bring_ten_times_as_many_and_a_thousand_at_least() -> None:
    assert [usual_most(size) for size in (0, 3, 100, 101, 50_000)] == [
        1000, 1000, 1000, 1010, 500_000,
    ]  # fmt: skip


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler: a process that was started in the background ignores interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("attempt", range(20))  # interrupts come at different moments of the start
def test_an_interrupt_in_a_notebook_stops_the_work_in_order(
    attempt: int, interruptible: None
) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("in order")
            raise

    async def notebook() -> None:
        complete(work())

    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(notebook())
    finally:
        loop.close()
    assert ended == ["in order"]


def test_other_columns_in_number_or_order_are_told_apart() -> None:
    names = pd.DataFrame({"name": ["a"], "birth": ["b"]})
    with pytest.raises(
        TacitError, match=r"differ in what is compared; name the same columns in the same order"
    ):
        asyncio.run(_differ(names))


async def _differ(table: pd.DataFrame) -> None:
    def program(me: str, key: list[str]) -> Program[Deal]:
        question = PsiQuestion.read(key, {**PSI_DEFAULTS, "column": "person"})
        terms = question.terms(["alice", "bob"])
        return lambda links: agree(links, me, terms, len(table))

    await converse(
        {"alice": program("alice", ["name", "birth"]), "bob": program("bob", ["name"])},
        purpose="test",
    )
