from hvd_elastic.priorityclasses import Problem


def test_a_problem_is_one_line_with_place_value_reason_and_way_out() -> None:
    problem = Problem(path="workers.min", value=5, what="is above workers.max 4", way_out="lower it")
    assert str(problem) == "workers.min: 5: is above workers.max 4: lower it"
    assert str(Problem(path="name", value=None, what="is missing")) == "name: is missing"


def test_the_value_of_a_whole_section_is_not_repeated() -> None:
    problem = Problem(path="data.fsx", value=..., what="is given as well as data.efs", way_out="keep one of them")
    assert str(problem) == "data.fsx: is given as well as data.efs: keep one of them"
