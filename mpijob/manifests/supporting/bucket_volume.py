"""A bucket as the volume of results, by the CSI driver of its cloud.

What each driver takes:

- Mountpoint for S3 (`s3.csi.aws.com`, awslabs/mountpoint-s3-csi-driver 2.7, `docs/CONFIGURATION.md`): "supports only
  static provisioning"; with `authenticationSource: pod` it mounts as the pod's ServiceAccount. It runs in pods
  of their own, which no NetworkPolicy of the job selects. Files of others can be replaced, but only whole
  (`allow-overwrite`), and removed (`allow-delete`) (awslabs/mountpoint-s3, `doc/SEMANTICS.md`).
- Cloud Storage FUSE (`gcsfuse.csi.storage.gke.io`, GoogleCloudPlatform/gcs-fuse-csi-driver, `examples/ephemeral`): a
  volume of the pod itself, as the pod's ServiceAccount. An annotation has GKE add a sidecar, whose requests the job's
  NetworkPolicies must let out. Pods of the node's network need `hostNetworkPodKSA` (`docs/authentication.md`).
- BlobFuse (`blob.csi.azure.com`, kubernetes-sigs/blob-csi-driver 1.27, `docs/driver-parameters.md`): has volumes of the
  pod itself as well, but until April 2026 it took no identity for them, only a Secret with the account's key
  (`pkg/blob/nodeserver.go`, `NodePublishVolume`). A PersistentVolume takes an identity's token since 1.27
  (`docs/workload-identity-static-pv-mount.md`).

A cluster that has one of them has a CSIDriver of its name (`charts/aws-mountpoint-s3-csi-driver/templates`,
`deploy/base/setup` and `deploy/csi-blob-driver.yaml` of these repositories).
"""

from collections.abc import Mapping
from typing import Final

from hvd_elastic.mpijob.clouds.bucket_url import BucketUrl
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.description.volume_spec import Bucket, CsiVolume
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, without_empty

_MOUNTPOINT: Final = "s3.csi.aws.com"
_FUSE: Final = "gcsfuse.csi.storage.gke.io"
_BLOBFUSE: Final = "blob.csi.azure.com"
DRIVERS: Final[Mapping[str, str]] = {
    _MOUNTPOINT: "install the EKS add-on aws-mountpoint-s3-csi-driver",
    _FUSE: "enable the GKE add-on GcsFuseCsiDriver",
    _BLOBFUSE: "az aks update --enable-blob-driver",
}
"""Each driver, and how a cluster gets it."""
_USER: Final = "1000"
_AZURE_SUFFIX: Final = "core.windows.net"


def is_inline(bucket: Bucket | None) -> bool:
    """Whether pods have the bucket without a claim. False: it is not a bucket, or one of another cloud."""
    return bucket is not None and bucket.url.startswith("gs:")


def driver(bucket: Bucket) -> str:
    """The CSI driver that mounts it."""
    scheme = BucketUrl.parse(bucket.url).scheme
    return {"s3": _MOUNTPOINT, "gs": _FUSE}.get(scheme, _BLOBFUSE)


def annotations(spec: JobSpec) -> dict[str, str]:
    """Of a pod that mounts the results: what has GKE add Cloud Storage FUSE's sidecar."""
    return {"gke-gcsfuse/volumes": "true"} if spec.output and is_inline(spec.output.bucket) else {}


def inline(spec: JobSpec, bucket: Bucket, *, read_only: bool = False) -> Manifest:
    """The source of a pod's volume, for a bucket of Google's."""
    url = BucketUrl.parse(bucket.url)
    folder = [f"only-dir={url.path}"] if url.path else []
    options = ["implicit-dirs", f"uid={_USER}", f"gid={_USER}", *folder, *bucket.mount_options]
    attributes = without_empty(
        bucketName=url.bucket,
        mountOptions=",".join(options),
        hostNetworkPodKSA="true" if spec.workers.on_host_network else None,
    )
    return {"csi": without_empty(driver=_FUSE, readOnly=read_only or None, volumeAttributes=attributes)}


def static(spec: JobSpec, bucket: Bucket, *, handle: str) -> CsiVolume:
    """What a PersistentVolume says of a bucket of another cloud. `handle`: no other volume of the cluster has it."""
    url = BucketUrl.parse(bucket.url)
    return _mountpoint(spec, bucket, url, handle) if url.scheme == "s3" else _blobfuse(bucket, url, handle)


def _mountpoint(spec: JobSpec, bucket: Bucket, url: BucketUrl, handle: str) -> CsiVolume:
    folder = [f"prefix={url.path}/"] if url.path else []
    user = ["allow-other", f"uid={_USER}", f"gid={_USER}"]
    return CsiVolume(
        driver=_MOUNTPOINT,
        handle=handle,
        attributes=without_empty(
            bucketName=url.bucket, authenticationSource="pod" if spec.workers.service_account else None
        ),
        mount_options=[*user, "allow-delete", "allow-overwrite", *folder, *bucket.mount_options],
    )


def _blobfuse(bucket: Bucket, url: BucketUrl, handle: str) -> CsiVolume:
    account, _, service = (url.account or bucket.account or "").partition(".")
    suffix = service.partition(".")[2]
    folder = [f"--subdirectory={url.path}"] if url.path else []
    user = ["-o allow_other", f"-o uid={_USER}", f"-o gid={_USER}"]
    return CsiVolume(
        driver=_BLOBFUSE,
        handle=handle,
        attributes=without_empty(
            protocol="fuse2",
            storageAccount=account,
            containerName=url.bucket,
            storageEndpointSuffix=suffix if suffix not in {"", _AZURE_SUFFIX} else None,
            clientID=bucket.client_id,
            mountWithWorkloadIdentityToken="true" if bucket.client_id else None,
        ),
        secret=bucket.secret,
        mount_options=[*user, *folder, *bucket.mount_options],
    )
