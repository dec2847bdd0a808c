"""Where pods get the credentials of their cloud: the services that answer on each node, at link-local addresses.

A NetworkPolicy that does not name them leaves a pod without credentials, where policies are enforced:

- EKS Pod Identity: an agent on each node, 169.254.170.23 port 80 ("Set up the Amazon EKS Pod Identity Agent", EKS user
  guide). The role of the node: the instance metadata service, 169.254.169.254 port 80 ("Use the Instance Metadata
  Service", EC2 user guide). In a cluster whose pods have IPv6 they are fd00:ec2::23 and fd00:ec2::254 (the same pages).
  IRSA asks STS, which is on port 443 like S3.
- GKE: the metadata server. With Dataplane V2 a policy sees 169.254.169.254 ports 80 and 8080; before it, the address
  to which the node translates them, 169.254.169.252 ports 988 and 987 ("Control communication between Pods and Services
  using network policies", GKE documentation). 8080 and 987 are a handshake that only gRPC's direct path makes, which
  nothing here uses (gke-labs/kube-agents, pull request 805). Some clusters see 169.254.169.254 port 988.
- AKS: workload identity asks login.microsoftonline.com on port 443, with a token that is a file ("Use Microsoft Entra
  Workload ID with AKS"). A managed identity of the node asks the instance metadata service, 169.254.169.254 port 80
  ("Azure Instance Metadata Service").

Pods of GKE and AKS have an IPv4 address in each cluster.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.mpijob.clouds.bucket_url import BucketUrl
from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests.supporting import bucket_volume

_OBJECT_STORES: Final = ("s3://", "gs://", "az://", "abfs://", "abfss://", ".blob.core.")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityService:
    """One address on each node, and the TCP ports on which it hands out credentials."""

    address: str
    """IPv4 or IPv6."""
    ports: tuple[int, ...]


_METADATA: Final = IdentityService(address="169.254.169.254", ports=(80,))
_EKS: Final = (IdentityService(address="169.254.170.23", ports=(80,)), _METADATA)
_EKS_IPV6: Final = (
    IdentityService(address="fd00:ec2::23", ports=(80,)),
    IdentityService(address="fd00:ec2::254", ports=(80,)),
)
"""Pod Identity's agent, and the metadata service."""
_GKE: Final = (
    IdentityService(address="169.254.169.254", ports=(80, 988)),
    IdentityService(address="169.254.169.252", ports=(988,)),
)


def services(spec: JobSpec) -> tuple[IdentityService, ...]:
    """The services that the job's workers must reach. None where they need no credentials, or the cloud is not known.

    An account of its own never needs the identity of the node: on EKS and AKS it does not open the way to that.
    """
    return _services(spec, needed=_needs_credentials(spec))


def services_of_copy(spec: JobSpec) -> tuple[IdentityService, ...]:
    """The services that the pods must reach which copy the job's data set, as the workers' account.

    A service of one's own does not know the cloud's identities, but an account may be there for it. An HTTP server's
    files are read without any.
    """
    own = spec.stage is not None and spec.stage.endpoint is not None
    needed = not own or spec.workers.service_account is not None
    return _services(spec, needed=needed and not (spec.stage and BucketUrl.parse(spec.stage.source).is_url_list))


def _services(spec: JobSpec, *, needed: bool) -> tuple[IdentityService, ...]:
    wanted = spec.network.identity
    if not (needed if wanted is None else wanted):
        return ()
    match spec.cloud:
        case Cloud.EKS:
            agent, metadata = _EKS_IPV6 if spec.network.ipv6 else _EKS
            return (agent,) if spec.workers.service_account else (agent, metadata)
        case Cloud.GKE:
            return _GKE
        case Cloud.AKS:
            return () if spec.workers.service_account else (_METADATA,)
        case Cloud.ANY:
            return ()


def _needs_credentials(spec: JobSpec) -> bool:
    return spec.workers.service_account is not None or any(
        store in text for text in _texts(spec) for store in _OBJECT_STORES
    )


def _texts(spec: JobSpec) -> Iterable[str]:
    """Where a user writes the URL of an object store that his workers use.

    Of the buckets that nodes mount, Google's alone is asked by a process of the pod.
    """
    checkpoint = [spec.checkpoint.url] if spec.checkpoint else []
    warm_start = [spec.checkpoint.warm_start.url] if spec.checkpoint and spec.checkpoint.warm_start else []
    bucket = spec.output.bucket if spec.output else None
    output = [bucket.url] if bucket and bucket_volume.is_inline(bucket) else []
    return [*checkpoint, *warm_start, *output, *spec.command, *spec.env.values()]
