"""Checks of `stage`: a data set that can be found, and a folder that it can be copied into."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.checks import network_checks
from hvd_elastic.mpijob.clouds.bucket_url import BUCKET_FORMS, BucketUrl
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.stage_spec import StageSpec
from hvd_elastic.priorityclasses.problem import Problem


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks source, account, endpoint and folder."""
    stage = spec.stage
    if stage is None:
        return
    yield from _source(spec, stage)
    yield from _port(spec, stage)
    if spec.data is None:
        way_out = "set data: a claim, or a new volume"
        yield Problem(path="stage", value=stage.source, what="has no data to copy into", way_out=way_out)
    elif stage.into and not PurePosixPath(stage.into).is_relative_to(spec.data.mount):
        what, way_out = f"is not in data.mount {spec.data.mount}", f"choose a folder in {spec.data.mount}"
        yield Problem(path="stage.into", value=stage.into, what=what, way_out=way_out)


def _source(spec: JobSpec, stage: StageSpec) -> Iterator[Problem]:
    url = BucketUrl.parse(stage.source)
    if not url.bucket or not (url.account is None or url.has_account or url.is_url_list):
        forms = [BUCKET_FORMS[url.scheme] + "/PREFIX", *(["https://HOST/LIST"] if url.scheme == "https" else [])]
        what = "does not name a data set"
        yield Problem(path="stage.source", value=stage.source, what=what, way_out=f"write {' or '.join(forms)}")
    known = stage.account or stage.endpoint or contract.ENV_AZURE_ACCOUNT in spec.env or spec.secrets
    if url.scheme == "az" and not known:
        what, way_out = "names a container alone", "name the storage account: set stage.account"
        yield Problem(path="stage.source", value=stage.source, what=what, way_out=way_out)
    if url.scheme != "az" and stage.account is not None:
        what = "has no effect without a URL that begins with az://"
        yield Problem(path="stage.account", value=stage.account, what=what, way_out="leave it out")
    if url.account is not None and stage.endpoint is not None:
        what = "has no effect: stage.source names the service"
        yield Problem(path="stage.endpoint", value=stage.endpoint, what=what, way_out="leave it out")


def _port(spec: JobSpec, stage: StageSpec) -> Iterator[Problem]:
    """The policy of the copy adds the port to the peers that name none."""
    peers, port = spec.network.egress, stage.port
    if not spec.network.policy or port is None or not peers or any(not peer.ports for peer in peers):
        return
    if port not in network_checks.open_ports(spec):
        path, value = ("stage.endpoint", stage.endpoint) if stage.endpoint else ("stage.source", stage.source)
        what = f"is on port {port}, which the NetworkPolicy blocks"
        yield Problem(path=path, value=value, what=what, way_out=f"name it, with {port}, in network.egress")
