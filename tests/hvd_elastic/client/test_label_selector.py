import pytest

from hvd_elastic.client.label_selector import selects


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchLabels": {"a": "1", "c": "1"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "c", "operator": "In", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "c", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_as_the_api_server_selects(selector: dict[str, object], expected: bool) -> None:
    assert selects(selector, {"a": "1", "b": ""}) is expected


def test_an_unknown_operator_is_an_error() -> None:
    with pytest.raises(ValueError, match="Near"):
        selects({"matchExpressions": [{"key": "a", "operator": "Near"}]}, {})
