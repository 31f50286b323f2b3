"""Splits depend only on names and the seed, are nested, and keep source and target images apart."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semilearn_ext.data.splits import Item, Split, check_labels, leave_one_out
from semilearn_ext.errors import UserError

DOMAINS, CLASSES = ("a", "b", "c", "d"), ("cat", "dog", "owl")


def items(per_class: int = 12) -> list[Item]:
    return [
        Item(f"{domain}/{name}/{k:03d}.png", label, domain, f"{k:03d}.png")
        for domain in DOMAINS
        for label, name in enumerate(CLASSES)
        for k in range(per_class)
    ]


def split(listing: list[Item], target: str = "d", labels: int = 3, seed: int = 1) -> Split:
    sources = [domain for domain in DOMAINS if domain != target]
    return leave_one_out(
        listing,
        dataset="toy",
        target=target,
        sources=sources,
        labels_per_class=labels,
        seed=seed,
        classes=CLASSES,
    )


def names(listing: list[Item], positions: list[int]) -> set[str]:
    return {listing[p].name for p in positions}


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 5), st.integers(1, 5), st.sampled_from(DOMAINS))
def test_listing_order_does_not_matter(shuffler: random.Random, seed: int, labels: int, target: str) -> None:
    plain, shuffled = items(), items()
    shuffler.shuffle(shuffled)
    for part, other in zip(split(plain, target, labels, seed), split(shuffled, target, labels, seed), strict=True):
        assert names(plain, part) == names(shuffled, other)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 50), st.sampled_from(DOMAINS))
def test_parts_are_disjoint_and_complete(seed: int, target: str) -> None:
    listing = items()
    parts = split(listing, target, 3, seed)
    together = [p for part in parts for p in part]
    assert sorted(together) == list(range(len(listing)))
    assert {listing[p].domain for p in parts.target} == {target}
    assert all(listing[p].domain != target for part in parts[:3] for p in part)


def test_counts() -> None:
    parts = split(items(12), labels=3)
    assert [len(part) for part in parts] == [27, 63, 18, 36]


def test_five_labels_are_a_subset_of_ten() -> None:
    listing = items(20)
    assert names(listing, split(listing, labels=5).labelled) < names(listing, split(listing, labels=10).labelled)


def test_the_target_domain_does_not_affect_the_labels_of_other_domains() -> None:
    listing = items()
    without_d, without_c = split(listing, "d"), split(listing, "c")
    common = [
        {listing[p].name for p in parts.labelled if listing[p].domain in "ab"} for parts in (without_d, without_c)
    ]
    assert common[0] == common[1]


def test_seeds_label_different_images_and_validate_on_the_same() -> None:
    listing = items()
    first, second = split(listing, seed=1), split(listing, seed=2)
    assert names(listing, first.labelled) != names(listing, second.labelled)
    assert names(listing, first.source_val) == names(listing, second.source_val)


def test_published_splits_do_not_change() -> None:
    """A change here changes every published split: it needs a new version and an entry in the changelog."""
    listing = items()
    first = sorted(names(listing, split(listing, labels=1, seed=1).labelled))[:3]
    assert first == FIRST_OF_SEED_1


FIRST_OF_SEED_1 = ["a/cat/006.png", "a/dog/000.png", "a/owl/001.png"]


def test_more_labels_than_images() -> None:
    listing = items(12)
    parts = split(listing, labels=50)
    assert parts.unlabelled == []
    check = {"sources": ("a", "b", "c"), "classes": CLASSES, "labels_per_class": 50, "where": "labels_per_class"}
    with pytest.raises(
        UserError,
        match=r"50 labels per class requested, but a/cat has only 10 training images and 8 more classes .*"
        r"--few_labels take_all",
    ):
        check_labels(parts, listing, few_labels="error", **check)
    short = check_labels(parts, listing, few_labels="take_all", **check)
    assert short == {f"{domain}/{name}": 10 for domain in "abc" for name in CLASSES}


@pytest.mark.parametrize("few_labels", ["error", "take_all"])
def test_a_class_is_short_of_labels_only_when_it_is_short_of_images(few_labels: str) -> None:
    listing = items(12)
    parts = split(listing, labels=3)
    for requested in (2, 4):
        with pytest.raises(
            UserError, match=f"{requested} labels per class requested, but class 'cat' of domain 'a' has 3"
        ):
            check_labels(
                parts,
                listing,
                sources=("a", "b", "c"),
                classes=CLASSES,
                labels_per_class=requested,
                few_labels=few_labels,
                where="file",
            )
