import pytest

from hvd_elastic.trainer.elastic.world.place import Place


def test_the_servers_answer_becomes_horovods_environment() -> None:
    place = Place.parse("1,4,0,2,1,3")
    assert place.environment() == {
        "HOROVOD_RANK": "1",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "3",
    }


@pytest.mark.parametrize("answer", ["", "1,2,3", "rank one of three", "1,2,3,4,5,6,7"])
def test_anything_else_is_refused(answer: str) -> None:
    with pytest.raises(ValueError):
        Place.parse(answer)
