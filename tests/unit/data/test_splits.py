from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import DataError
from tacit.core.seeds import numpy_generator
from tacit.data.partition import add_noise, divide
from tacit.data.splits.by_client import ByClient
from tacit.data.splits.columns import Columns
from tacit.data.splits.feature_noise import FeatureNoise
from tacit.data.splits.label_dirichlet import LabelDirichlet
from tacit.data.splits.labels_per_party import LabelsPerParty
from tacit.data.splits.quantity_skew import QuantitySkew
from tacit.data.splits.split import Split
from tacit.data.splits.thesis_dirichlet import ThesisDirichlet

SPLITS = list(Split.known())
PARTITIONS = [name for name in SPLITS if not Split.find(name).overlapping]


def labels_of(samples: int, classes: int, seed: int = 0) -> np.ndarray:
    return numpy_generator(seed, "labels").integers(0, classes, samples)


@given(
    st.sampled_from(PARTITIONS),
    st.integers(1, 12),
    st.integers(1, 300),
    st.integers(1, 6),
    st.integers(0, 10),
)
@settings(deadline=None, max_examples=150)
def test_a_partition_covers_every_sample_once_or_says_why_not(
    name: str, clients: int, samples: int, classes: int, seed: int
) -> None:
    labels = labels_of(samples, classes, seed)
    try:
        shards = Split.build(name)(labels, clients, numpy_generator(seed, "split"))
    except DataError:
        assert clients > samples or name not in ("iid", "feature_noise")
        return
    assert np.array_equal(np.sort(np.concatenate(shards)), np.arange(samples))
    assert len(shards) == clients
    assert all(len(shard) for shard in shards)


@given(st.sampled_from(SPLITS), st.integers(0, 100))
@settings(deadline=None)
def test_a_split_is_a_function_of_its_seed_and_leaves_the_labels_alone(
    name: str, seed: int
) -> None:
    labels = labels_of(400, 4)
    before = labels.copy()
    first, again = (Split.build(name)(labels, 4, numpy_generator(seed, "s")) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert np.array_equal(labels, before)


@pytest.mark.parametrize("name", SPLITS)
def test_more_clients_than_samples_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="11 clients cannot share 10 samples"):
        Split.build(name)(np.arange(10) % 2, 11, numpy_generator(0))


def test_iid_clients_differ_by_one_sample_at_most() -> None:
    shards = Split.build("iid")(labels_of(100, 3), 7, numpy_generator(0))
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_labels_per_party_deals_two_three_and_five_labels_apart(seed: int) -> None:
    labels = labels_of(1000, 10)
    shards = LabelsPerParty((2, 3, 5))(labels, 3, numpy_generator(seed))
    held = [set(labels[shard].tolist()) for shard in shards]
    assert [len(classes) for classes in held] == [2, 3, 5]
    assert set.union(*held) == set(range(10))


@given(st.integers(1, 10), st.integers(1, 30), st.integers(0, 20))
@settings(deadline=None)
def test_labels_per_party_gives_each_client_c_labels(c: int, clients: int, seed: int) -> None:
    labels = np.repeat(np.arange(10), 40)
    split = LabelsPerParty(c)
    if c * clients < 10:
        with pytest.raises(DataError, match=f"cover {c * clients} of 10 labels"):
            split(labels, clients, numpy_generator(seed))
        return
    for shard in split(labels, clients, numpy_generator(seed)):
        assert len(set(labels[shard].tolist())) == c


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ((2, 3), "one count for each of 3"),
        ((0, 5, 5), "counts from 1 to 10"),
        ((11, 1, 1), "counts from 1 to 10"),
    ],
)
def test_labels_per_party_refuses_counts_that_cannot_be(
    wanted: tuple[int, ...], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        LabelsPerParty(wanted)(labels_of(100, 10), 3, numpy_generator(0))


def test_label_dirichlet_draws_over_clients_for_each_class() -> None:
    """A share of Dir(beta) over N clients has mean 1/N, variance (1/N)(1 - 1/N) / (N beta + 1)."""
    labels = np.repeat(np.arange(20), 500)
    shares = []
    for seed in range(30):
        shards = LabelDirichlet(0.5, min_samples=1)(labels, 4, numpy_generator(seed))
        shares.append([np.bincount(labels[shard], minlength=20) / 500 for shard in shards])
    assert np.mean(shares) == pytest.approx(1 / 4)
    assert np.var(shares) == pytest.approx(0.25 * 0.75 / (4 * 0.5 + 1), rel=0.1)


def test_label_dirichlet_takes_a_classes_samples_in_random_order() -> None:
    shard = LabelDirichlet(5.0)(np.zeros(1000, int), 3, numpy_generator(0))[1]
    assert np.diff(shard).max() > 3
    assert shard[0] < 50
    assert shard[-1] > 950


@pytest.mark.parametrize("seed", range(5))
def test_labels_per_party_divides_evenly_whatever_the_clients_number(seed: int) -> None:
    labels = np.repeat(np.arange(10), 15)
    sizes = [len(shard) for shard in LabelsPerParty(10)(labels, 10, numpy_generator(seed))]
    assert max(sizes) - min(sizes) <= 1
    assert len(LabelsPerParty(10)(np.arange(20) % 10, 15, numpy_generator(seed))) == 15


def test_a_large_beta_is_even_and_a_small_one_is_not() -> None:
    labels = np.repeat(np.arange(10), 100)

    def skew(beta: float) -> float:
        shards = LabelDirichlet(beta)(labels, 5, numpy_generator(3))
        deviations = [np.bincount(labels[shard], minlength=10).std() for shard in shards]
        return float(np.mean(deviations))

    assert skew(1000.0) < 2 < 20 < skew(0.1)


def test_balanced_dirichlet_stops_feeding_a_client_that_has_its_share() -> None:
    labels = np.repeat(np.arange(50), 20)
    shards = LabelDirichlet(0.2, balance=True)(labels, 5, numpy_generator(0))
    sizes = [len(shard) for shard in shards]
    assert max(sizes) < 1000 / 5 + 20


def test_dirichlet_gives_up_with_a_reason_instead_of_drawing_for_ever() -> None:
    with pytest.raises(DataError, match="in 1000 draws some client always had fewer than 30"):
        LabelDirichlet(0.1, min_samples=30)(np.zeros(60, int), 10, numpy_generator(0))
    with pytest.raises(DataError, match="use a larger beta"):
        QuantitySkew(1e-9)(np.zeros(60, int), 5, numpy_generator(0))


def test_quantity_skew_changes_sizes_and_not_labels() -> None:
    labels = np.repeat(np.arange(2), 5000)
    shards = QuantitySkew(0.5)(labels, 4, numpy_generator(1))
    sizes = [len(shard) for shard in shards]
    assert max(sizes) > 3 * min(sizes)
    for shard in shards:
        assert len(shard) <= 500 or abs(labels[shard].mean() - 0.5) < 0.1


def test_feature_noise_grows_with_the_party() -> None:
    assert FeatureNoise(0.5).noise(5).tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    deviations = FeatureNoise(0.5, unit="variance").noise(2)
    assert deviations.tolist() == pytest.approx([0.25**0.5, 0.5**0.5])
    x = torch.zeros(3000, 40)
    partition = divide(np.zeros(3000, int), FeatureNoise(0.6), 3, 0)
    noisy = add_noise(x, partition, 0)
    for side in (partition.train, partition.test):
        measured = [noisy[torch.from_numpy(side[k])].std().item() for k in range(3)]
        assert measured == pytest.approx([0.2, 0.4, 0.6], rel=0.05)
    assert x.abs().sum() == 0


def test_noise_free_splits_share_the_features() -> None:
    x = torch.zeros(10, 2)
    partition = divide(np.zeros(10, int), Split.build("iid"), 2, 0)
    assert add_noise(x, partition, 0) is x


def test_thesis_shards_overlap_and_leave_samples_out() -> None:
    labels = np.repeat(np.arange(10), 500)
    shards = ThesisDirichlet(0.5)(labels, 3, numpy_generator(0))
    assert all(len(shard) == len(set(shard.tolist())) for shard in shards)
    assert all(450 <= len(shard) <= 510 for shard in shards)
    together = np.concatenate(shards)
    assert len(set(together.tolist())) < len(together)
    assert len(set(together.tolist())) < 1600
    counts = np.array([np.bincount(labels[shard], minlength=10) for shard in shards])
    assert (counts.std(1) > 20).all()
    assert (counts[0] != counts[1]).any()


@given(st.integers(2, 400), st.integers(1, 8), st.floats(0, 0.9), st.integers(0, 50))
@settings(deadline=None)
def test_local_tests_and_the_server_sample_are_disjoint_from_training(
    n: int, clients: int, share: float, server: int
) -> None:
    labels = np.zeros(n, int)
    iid = Split.build("iid")
    if clients > n - server or server >= n:
        with pytest.raises(DataError):
            divide(labels, iid, clients, 0, server_samples=server, local_test=share)
        return
    partition = divide(labels, iid, clients, 0, server_samples=server, local_test=share)
    together = np.concatenate([*partition.train, *partition.test, partition.server])
    assert np.array_equal(np.sort(together), np.arange(n))
    assert len(partition.server) == server
    assert all(len(train) for train in partition.train)


def test_a_tenth_is_kept_for_the_local_test() -> None:
    partition = divide(np.zeros(1000, int), Split.build("iid"), 4, 0)
    assert [len(test) for test in partition.test] == [25] * 4


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.floats(0, 1), st.integers(0, 9))
def test_columns_have_one_holder_and_a_share_of_the_people_is_known_to_all(
    rows: int, columns: int, parties: int, overlap: float, seed: int
) -> None:
    try:
        holdings = Columns(parties, overlap)(rows, columns, numpy_generator(seed))
    except DataError:
        assert parties > columns or round(overlap * rows) == 0
        return
    held = np.concatenate([holding.columns for holding in holdings])
    assert sorted(held.tolist()) == list(range(columns))
    people = [set(holding.rows.tolist()) for holding in holdings]
    if parties > 1:
        assert len(set.intersection(*people)) == round(overlap * rows)
    assert set.union(*people) == set(range(rows))


def test_named_columns_must_be_each_column_once() -> None:
    holdings = Columns(((0, 2), (1,)))(4, 3, numpy_generator(0))
    assert [holding.columns.tolist() for holding in holdings] == [[0, 2], [1]]
    with pytest.raises(DataError, match="each of the columns 0 to 2 once"):
        Columns(((0, 1), (1, 2)))(4, 3, numpy_generator(0))


@given(st.lists(st.integers(0, 4), min_size=5, max_size=60), st.floats(0, 0.5))
def test_by_client_gives_each_client_its_own_rows_and_name(whose: list[int], share: float) -> None:
    owner = np.array([0, 1, 2, 3, 4, *whose])
    names = ("a", "b", "c", "d", "e")
    labels = np.zeros(len(owner), int)
    split = Split.build("by_client")
    partition = divide(labels, split, 5, 0, owner=owner, owners=names, local_test=share)
    assert partition.names == names
    for client in range(5):
        rows = np.concatenate([partition.train[client], partition.test[client]])
        assert np.array_equal(np.sort(rows), np.flatnonzero(owner == client))


def test_by_client_needs_owners_and_their_number() -> None:
    labels = np.zeros(6, int)
    split = Split.build("by_client")
    with pytest.raises(DataError, match="by_client needs data that name each row's client"):
        divide(labels, split, 2, 0)
    named = {"owner": np.arange(6) % 3, "owners": ("a", "b", "c")}
    with pytest.raises(DataError, match=r"^the column hospital names 3 clients; set clients: 3$"):
        divide(labels, split, 2, 0, column="hospital", **named)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the rows name 3 clients; set clients: 3"):
        split(np.arange(6) % 3, 2, numpy_generator(0))


def test_clients_of_other_splits_are_called_by_their_numbers() -> None:
    assert divide(np.zeros(9, int), Split.build("iid"), 3, 0).names == ("0", "1", "2")


def test_clients_test_on_all_samples_of_a_person_or_on_none() -> None:
    """Three samples of everybody, dealt out among two clients."""
    person = np.repeat(np.arange(60), 3)
    owner = np.repeat(np.arange(2), 90)
    options: dict[str, Any] = {"owner": owner, "owners": ("a", "b"), "person": person}
    partition = divide(np.zeros(180, np.int64), ByClient(), 2, 0, **options)
    for train, test in zip(partition.train, partition.test, strict=True):
        assert not set(person[train]) & set(person[test])
        assert len(test) == 9  # a tenth
        assert len(train) == 81
    other = divide(np.zeros(180, np.int64), ByClient(), 2, 1, **options)
    assert set(other.test[0]) != set(partition.test[0])
    one_person = divide(np.zeros(180, np.int64), ByClient(), 2, 0, **{**options, "person": owner})
    assert [len(test) for test in one_person.test] == [0, 0]
