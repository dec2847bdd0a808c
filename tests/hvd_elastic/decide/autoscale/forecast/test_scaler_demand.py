"""How many GPUs are coming, by what scalers call for and what pods ask for."""

from hvd_elastic.decide.autoscale.forecast.scaler_demand import ScalerDemand, coming_gpus, starting
from tests.hvd_elastic.decide.autoscale.model_cluster import pod

WEB = "prod/Deployment/web"
OTHER = "prod/Deployment/other"


def test_gpus_of_the_pods_that_are_not_there_yet() -> None:
    pods = [pod("a", workload=WEB, gpus=2, node="n"), pod("b", workload=WEB, gpus=2), pod("c", gpus=8)]
    leaving = pod("d", workload=WEB, gpus=2, node="n", leaving=True)
    demand = ScalerDemand(workload=WEB, replicas=5)
    assert coming_gpus([demand], [*pods, leaving]) == 6
    assert coming_gpus([demand, ScalerDemand(workload=OTHER, replicas=9)], pods) == 6
    assert coming_gpus([ScalerDemand(workload=WEB, replicas=1)], pods) == 0


def test_a_template_tells_what_the_first_pods_will_ask_for() -> None:
    demand, template = ScalerDemand(workload=WEB, replicas=3, from_zero=True), pod("", workload=WEB, gpus=4)
    assert coming_gpus([demand], []) == 0
    assert coming_gpus([demand], [], [template]) == 12
    assert coming_gpus([demand], [pod("a", workload=WEB, gpus=2)], [template]) == 4, "what is there counts more"


def test_two_scalers_of_one_workload_do_not_add_up() -> None:
    both = [ScalerDemand(workload=WEB, replicas=0, from_zero=True), ScalerDemand(workload=WEB, replicas=2)]
    assert coming_gpus(both, [], [pod("", workload=WEB, gpus=1)]) == 2


def test_only_templates_of_who_is_called_back_from_zero_are_wanted() -> None:
    asleep = ScalerDemand(workload="prod/Deployment/asleep", replicas=0, from_zero=True)
    busy = ScalerDemand(workload="prod/Deployment/without-gpus", replicas=20)
    waking = ScalerDemand(workload=WEB, replicas=1, from_zero=True)
    assert starting([asleep, busy, waking], []) == [WEB]
    assert starting([waking], [pod("a", workload=WEB)]) == []
    # Of one with KEDA the HPA knows that it is at zero, and KEDA that it is called for.
    keda = [ScalerDemand(workload=OTHER, replicas=0, from_zero=True), ScalerDemand(workload=OTHER, replicas=1)]
    assert starting(keda, []) == [OTHER]
