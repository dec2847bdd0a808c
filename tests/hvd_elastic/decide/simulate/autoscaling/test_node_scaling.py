"""Which nodes a cluster autoscaler buys and takes away."""

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.autoscaling.node_scaling import nodes_to_add, unneeded_nodes
from hvd_elastic.decide.simulate.day import NodeGroup

GROUP = NodeGroup(gpus=8, most=10)


def test_large_pods_fill_nodes_first_and_small_ones_what_is_left_of_them() -> None:
    assert nodes_to_add({1: 6, 5: 2}, GROUP, coming=0, there=0) == 2
    assert nodes_to_add({1: 7, 5: 2}, GROUP, coming=0, there=0) == 3


def test_nodes_on_their_way_are_filled_before_others_are_called() -> None:
    assert nodes_to_add({8: 3}, GROUP, coming=2, there=0) == 1
    assert nodes_to_add({8: 3}, GROUP, coming=4, there=0) == 0


def test_the_group_has_so_many_nodes_at_one_time() -> None:
    assert nodes_to_add({1: 10_000_000}, GROUP, coming=1, there=3) == 6
    assert nodes_to_add({8: 3}, GROUP, coming=0, there=10) == 0


def test_no_node_is_bought_for_a_pod_that_is_larger_than_a_node() -> None:
    assert nodes_to_add({9: 1, 8: 1}, GROUP, coming=0, there=0) == 1


@given(waiting=st.dictionaries(st.integers(1, 8), st.integers(1, 5), max_size=4))
def test_all_pods_fit_and_no_node_is_bought_in_vain(waiting: dict[int, int]) -> None:
    plenty = NodeGroup(gpus=8, most=100)
    nodes = nodes_to_add(waiting, plenty, coming=0, there=0)
    asked = sum(gpus * pods for gpus, pods in waiting.items())
    assert asked <= nodes * plenty.gpus
    assert nodes <= max(1, 2 * asked // plenty.gpus) if waiting else nodes == 0


def test_a_node_is_unneeded_since_it_was_seen_so_first_without_a_break() -> None:
    first = unneeded_nodes([1, 2], {}, 2, 10.0)
    assert first == {1: 10.0, 2: 10.0}
    second = unneeded_nodes([2], first, 2, 20.0)
    assert unneeded_nodes([1, 2], second, 2, 30.0) == {1: 30.0, 2: 10.0}
    assert unneeded_nodes([1, 2], second, 1, 30.0) == {1: 30.0}, "the chunks of a buffer need the other"
