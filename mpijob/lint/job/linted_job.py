"""An MPIJob as the rules see it: its two pod templates, its launcher's command line and the stream's other objects."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from hvd_elastic.mpijob.clouds.accelerators import is_accelerator
from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, ENV_ENGINE, HOSTS_SCRIPT, SSH_PORT, Engine
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.document.manifest_view import ManifestView
from hvd_elastic.mpijob.lint.job.container_command import ContainerCommand, ShellWord, expand, unwrap
from hvd_elastic.mpijob.lint.job.horovod_version import BUNDLED, HorovodVersion, of_image
from hvd_elastic.mpijob.lint.job.launcher_command_line import PROGRAMS, LauncherCommandLine, LauncherFlag, parse
from hvd_elastic.mpijob.lint.job.related_objects import RelatedObjects, index_objects

GROUP: Final = "kubeflow.org"
OPERATOR_SCRIPT: Final = "/etc/mpi/discover_hosts.sh"


class MPIJobVersion(StrEnum):
    """The API versions of MPIJob that are in use and can run elastic jobs."""

    V1 = "v1"
    V2BETA1 = "v2beta1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container, its environment as far as the manifest states it, and the command that it runs."""

    view: ManifestView
    environment: Mapping[str, str]
    """Literal values by name; variables with `valueFrom` are left out."""
    command: ContainerCommand
    """`words` without shells and wrappers."""
    words: tuple[ShellWord, ...]
    """`command` and `args` as written, with `$(VAR)` expanded."""

    @property
    def name(self) -> str:
        return self.view.get("name").text or ""

    def variable(self, name: str) -> ManifestView:
        """The entry of `env` with that name."""
        return self.view.get("env").named(name)

    def mount(self, path: str) -> ManifestView:
        """The volume mount that contains `path`; the innermost if there are several."""
        mounts = [m for m in self.view.get("volumeMounts").items() if _contains(m.get("mountPath").text, path)]
        return max(
            mounts, key=lambda mount: len(mount.get("mountPath").text or ""), default=ManifestView(None, self.view.path)
        )

    def resource(self, name: str) -> ManifestView:
        """The container's limit of that resource, or its request if there is no limit."""
        limit = self.view.get("resources", "limits", name)
        return limit if limit.exists else self.view.get("resources", "requests", name)

    @property
    def gpus(self) -> tuple[ManifestView, ...]:
        """The limit, or else the request, of each resource that is a GPU, a part of one, or another accelerator."""
        parts = [self.view.get("resources", part) for part in ("limits", "requests")]
        names = dict.fromkeys(name for part in parts for name, _ in part.pairs() if is_accelerator(name))
        return tuple(self.resource(name) for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """A pod template."""

    template: ManifestView
    containers: tuple[Container, ...]
    init: tuple[Container, ...]
    main: Container
    """The container that the operator configures; an empty one if the template has no container."""

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """The init containers, then the others."""
        return (*self.init, *self.containers)

    @property
    def spec(self) -> ManifestView:
        return self.template.get("spec")

    def volume(self, name: str | None) -> ManifestView:
        return self.spec.get("volumes").named(name) if name else ManifestView(None, self.spec.path)

    def volume_at(self, path: str) -> ManifestView:
        """The volume that contains `path` in the main container."""
        return self.volume(self.main.mount(path).get("name").text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The entry `Launcher` or `Worker` of `mpiReplicaSpecs`."""

    view: ManifestView
    pod: PodTemplate

    @property
    def replicas(self) -> int | None:
        """The number of replicas; None if it is not set or not a whole number."""
        return self.view.get("replicas").number


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedJob:
    """One MPIJob. Like ManifestView, it accepts anything: a job without a single valid field is still a LintedJob."""

    document: Document
    view: ManifestView
    version: MPIJobVersion | None
    """None if the apiVersion is unknown."""
    launcher: Replica
    worker: Replica
    command_line: LauncherCommandLine
    related_objects: RelatedObjects
    other_jobs: tuple["LintedJob", ...] = ()
    """The other MPIJobs of the stream."""
    stated_horovod: HorovodVersion | None = None
    """The Horovod of the job's image, if the user states it."""

    @property
    def spec(self) -> ManifestView:
        return self.view.get("spec")

    @property
    def name(self) -> str:
        """The job's name; empty if it has none."""
        return self.view.get("metadata", "name").text or ""

    @property
    def namespace(self) -> str:
        """The job's namespace; `default` if none is set."""
        return self.view.get("metadata", "namespace").text or "default"

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Those of the launcher's pod, then those of a worker's."""
        return (*self.launcher.pod.all_containers, *self.worker.pod.all_containers)

    @property
    def elastic(self) -> bool:
        """Whether the job can change its size while it runs."""
        return self.command_line.elastic

    @property
    def generated(self) -> bool:
        """Whether `generate` rendered the job from a job description: what it leaves out was left out on purpose."""
        return self.view.get("metadata", "annotations", ANNOTATION_SPEC).exists

    @property
    def horovod(self) -> HorovodVersion | None:
        """The Horovod of the launcher's image: what the user states, or what the image's name tells; else None."""
        words = self.command_line.program_words
        if self.stated_horovod is not None:
            return self.stated_horovod
        if words and words[0].program == "hvd-elastic":  # brings its own
            return BUNDLED
        return of_image(self.launcher.pod.main.view.get("image").text)

    @property
    def engine(self) -> ManifestView:
        """The variable of the launcher, or else of the workers, that says what trains; it may not exist."""
        variables = [replica.pod.main.variable(ENV_ENGINE) for replica in (self.launcher, self.worker)]
        return next((variable for variable in variables if variable.exists), variables[0])

    @property
    def needs_horovod(self) -> bool:
        """Whether Horovod trains, and not torch.distributed."""
        return self.engine.get("value").text != Engine.TORCH

    @property
    def slots(self) -> int:
        """Processes per worker by `slotsPerWorker`, the number that the operator writes into its hostfile."""
        number = self.spec.get("slotsPerWorker").number
        return 1 if number is None else number

    @property
    def launcher_trains(self) -> bool:
        """Whether the operator lists the launcher among the hosts, before the workers.

        In v1 it does so if a limit of the launcher's containers is named like a GPU: training-operator 1.8.1,
        `mpi/mpijob.go`, isGPULauncher.
        """
        if self.version is MPIJobVersion.V2BETA1:
            return self.spec.get("runLauncherAsWorker").value is True
        limits = [container.view.get("resources", "limits") for container in self.launcher.pod.containers]
        return self.version is MPIJobVersion.V1 and any("gpu" in name for limit in limits for name, _ in limit.pairs())

    @property
    def capacity(self) -> int | None:
        """Most processes that all hosts together can run; None if the number of workers is unknown."""
        if self.worker.replicas is None:
            return None
        return (self.worker.replicas + self.launcher_trains) * (self.host_slots or 1)

    @property
    def host_slots(self) -> int | None:
        """Processes per worker that horovodrun starts: `--slots-per-host`, or `slotsPerWorker` if it is not set."""
        flag = self.command_line.number("--slots-per-host")
        return self.slots if flag is None else flag

    @property
    def min_np(self) -> int | None:
        """The value of `--min-np`, or of `-np` if it is not set."""
        number = self.command_line.number("--min-np")
        return self.command_line.number("-np") if number is None else number

    @property
    def discovery_flag(self) -> LauncherFlag | None:
        """The flag `--host-discovery-script`; None if it is not set."""
        return self.command_line.flags.get("--host-discovery-script")

    @property
    def has_discovery_sidecar(self) -> bool:
        """Whether hvd-elastic's discovery sidecar runs beside the launcher."""
        return any(runs_hvd_elastic(container, "discovery-sidecar") for container in self.launcher.pod.init)

    @property
    def runs_worker_entry_point(self) -> bool:
        """Whether the workers run hvd-elastic's entry point, `hvd-elastic worker`."""
        return runs_hvd_elastic(self.worker.pod.main, "worker")

    @property
    def reads_sidecar_hosts(self) -> bool:
        """Whether the discovery script is the one that the sidecar writes."""
        flag = self.discovery_flag
        return flag is not None and (flag.text or "").rsplit("/", 1)[-1] == HOSTS_SCRIPT

    @property
    def ssh_port(self) -> int | None:
        """The port of the worker's sshd; None if the manifest does not state it."""
        words = [word.text for word in self.worker.pod.main.command.words]
        for flag, value in pairwise(words):
            if flag == "-p" and value.isdecimal() and len(value) < 6:
                return int(value)
        ports = [port.get("containerPort").number for port in self.worker.pod.main.view.get("ports").items()]
        return next((port for port in ports if port in (22, SSH_PORT)), None)

    @property
    def runs_sshd(self) -> bool:
        """Whether the worker's PID 1 is sshd, which the operator starts if neither command nor args is set."""
        main = self.worker.pod.main
        default = self.version is MPIJobVersion.V2BETA1 and main.view.exists and not main.words
        return default or main.command.program == "sshd"


def runs_hvd_elastic(container: Container, verb: str) -> bool:
    """Whether the container runs `hvd-elastic VERB`."""
    words = container.command.words
    return len(words) > 1 and words[0].program == "hvd-elastic" and words[1].text == verb


def _contains(mount: str | None, path: str) -> bool:
    return mount is not None and (path == mount or path.startswith(mount.rstrip("/") + "/"))


def is_mpijob(view: ManifestView) -> bool:
    """Whether this is a Kubeflow MPIJob, of any version."""
    api = view.get("apiVersion").text or ""
    return view.get("kind").value == "MPIJob" and (api.partition("/")[0] == GROUP or "/" not in api)


def jobs(documents: list[Document]) -> list[LintedJob]:
    """The MPIJobs among the documents and in their Lists, each with the stream's other objects."""
    objects = [(document, view) for document in documents for view in _objects(document.view)]
    related = index_objects([view for _, view in objects if not is_mpijob(view)])
    return [_job(document, view, related) for document, view in objects if is_mpijob(view)]


def _objects(view: ManifestView) -> Iterator[ManifestView]:
    if view.get("kind").value in ("List", "MPIJobList") and isinstance(view.get("items").value, list):
        for item in view.get("items").items():
            yield from _objects(item)
    elif isinstance(view.value, dict):
        yield view


def _job(document: Document, view: ManifestView, related: RelatedObjects) -> LintedJob:
    version = (view.get("apiVersion").text or "").rpartition("/")[2]
    spec = view.get("spec")
    main = spec.get("mainContainer").text if version == MPIJobVersion.V1 else None
    launcher = _replica(spec.get("mpiReplicaSpecs", "Launcher"), main)
    return LintedJob(
        document=document,
        view=view,
        version=MPIJobVersion(version) if version in tuple(MPIJobVersion) else None,
        launcher=launcher,
        worker=_replica(spec.get("mpiReplicaSpecs", "Worker"), main),
        command_line=parse(launcher.pod.main.command),
        related_objects=related,
    )


def _replica(view: ManifestView, main: str | None) -> Replica:
    template = view.get("template")
    containers = tuple(map(_container, template.get("spec", "containers").items()))
    init = tuple(map(_container, template.get("spec", "initContainers").items()))
    empty = _container(ManifestView(None, (*template.path, "spec", "containers", 0)))
    first = next((c for c in containers if c.name == main), containers[0] if containers else empty)
    return Replica(view=view, pod=PodTemplate(template=template, containers=containers, init=init, main=first))


def _container(view: ManifestView) -> Container:
    environment = {
        name: variable.get("value").text or ""
        for variable in view.get("env").items()
        if (name := variable.get("name").text) and not variable.get("valueFrom").exists
    }
    words = expand([*_words(view.get("command")), *_words(view.get("args"))], environment)
    command = unwrap(words, environment, PROGRAMS)
    return Container(view=view, environment=environment, command=command, words=words)


def _words(view: ManifestView) -> Iterator[ShellWord]:
    for item in view.items():
        if isinstance(item.value, str | int | float) and not isinstance(item.value, bool):
            yield ShellWord(str(item.value), item.path)
