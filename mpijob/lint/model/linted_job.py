"""An MPIJob as the rules see it: its two pods, its launcher's command line, and what else is in the stream."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC, HOSTS_SCRIPT, SSH_PORT
from hvd_elastic.mpijob.lint.document.manifest_reader import Document
from hvd_elastic.mpijob.lint.document.view import View
from hvd_elastic.mpijob.lint.model.companions import Companions, companions
from hvd_elastic.mpijob.lint.model.container_command import Command, ShellWord, expand, unwrap
from hvd_elastic.mpijob.lint.model.horovodrun_flags import PROGRAMS, Call, Flag, parse

GROUP: Final = "kubeflow.org"
OPERATOR_SCRIPT: Final = "/etc/mpi/discover_hosts.sh"
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi")


class Version(StrEnum):
    """API versions of MPIJob that exist in the wild and have an elastic mode."""

    V1 = "v1"
    V2BETA1 = "v2beta1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container, its environment as far as the manifest states it, and its command without shells and wrappers."""

    view: View
    environment: Mapping[str, str]
    """Names and literal values."""
    command: Command
    words: tuple[ShellWord, ...]
    """Command and args as written, variables filled in."""

    @property
    def name(self) -> str:
        """The container's name."""
        return self.view.get("name").text or ""

    def variable(self, name: str) -> View:
        """The entry of `env` of that name."""
        return self.view.get("env").named(name)

    def mount(self, path: str) -> View:
        """The volume mount that holds `path`: the one with the longest mount path."""
        held = [m for m in self.view.get("volumeMounts").items() if _holds(m.get("mountPath").text, path)]
        return max(held, key=lambda mount: len(mount.get("mountPath").text or ""), default=View(None, self.view.path))

    def resource(self, name: str) -> View:
        """Its limit, else its request."""
        limit = self.view.get("resources", "limits", name)
        return limit if limit.exists else self.view.get("resources", "requests", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod template."""

    template: View
    containers: tuple[Container, ...]
    init: tuple[Container, ...]
    main: Container
    """The container that the operator works on; an empty one where there is none."""

    @property
    def spec(self) -> View:
        """The pod's spec."""
        return self.template.get("spec")

    def volume(self, name: str | None) -> View:
        """The volume of that name."""
        return self.spec.get("volumes").named(name) if name else View(None, self.spec.path)

    def volume_at(self, path: str) -> View:
        """The volume that holds `path` in the main container."""
        return self.volume(self.main.mount(path).get("name").text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """Launcher or Worker of `mpiReplicaSpecs`."""

    view: View
    pod: Pod

    @property
    def replicas(self) -> int | None:
        """How many; None where that is not said, or is no number."""
        return self.view.get("replicas").number


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedJob:
    """One MPIJob. Every field is as tolerant as View: a job without any valid field is still a Job."""

    document: Document
    view: View
    version: Version | None
    """None: an apiVersion that is not known."""
    launcher: Replica
    worker: Replica
    call: Call
    companions: Companions
    others: tuple["LintedJob", ...] = ()
    """The stream's other jobs."""

    @property
    def spec(self) -> View:
        """The job's spec."""
        return self.view.get("spec")

    @property
    def name(self) -> str:
        """The job's name; empty where it has none."""
        return self.view.get("metadata", "name").text or ""

    @property
    def namespace(self) -> str:
        """Its namespace; `default` where none is named."""
        return self.view.get("metadata", "namespace").text or "default"

    @property
    def elastic(self) -> bool:
        """Whether it can change its size."""
        return self.call.elastic

    @property
    def described(self) -> bool:
        """Rendered from a job description: what it leaves out was left out on purpose, and its reader was told."""
        return self.view.get("metadata", "annotations", ANNOTATION_SPEC).exists

    @property
    def slots(self) -> int:
        """Processes per worker that the operator writes down."""
        number = self.spec.get("slotsPerWorker").number
        return 1 if number is None else number

    @property
    def capacity(self) -> int | None:
        """Processes that all workers have room for."""
        return None if self.worker.replicas is None else self.worker.replicas * (self.host_slots or 1)

    @property
    def host_slots(self) -> int | None:
        """Processes per worker that horovodrun will use."""
        flag = self.call.number("--slots-per-host")
        return self.slots if flag is None else flag

    @property
    def min_np(self) -> int | None:
        """`--min-np`, which is `-np` where it is not set."""
        number = self.call.number("--min-np")
        return self.call.number("-np") if number is None else number

    @property
    def script(self) -> Flag | None:
        """The host discovery script's flag."""
        return self.call.flags.get("--host-discovery-script")

    @property
    def own_discovery(self) -> bool:
        """hvd-elastic's discovery sidecar runs beside the launcher."""
        return any(is_ours(container, "discovery-sidecar") for container in self.launcher.pod.init)

    @property
    def own_workers(self) -> bool:
        """Workers run hvd-elastic's entry point."""
        return is_ours(self.worker.pod.main, "worker")

    @property
    def own_script(self) -> bool:
        """The discovery script is the one that the sidecar writes."""
        script = self.script
        return script is not None and (script.text or "").rsplit("/", 1)[-1] == HOSTS_SCRIPT

    @property
    def ssh_port(self) -> int | None:
        """The port that the worker's sshd is told to use, where the manifest says so."""
        words = [word.text for word in self.worker.pod.main.command.words]
        for flag, value in pairwise(words):
            if flag == "-p" and value.isdecimal() and len(value) < 6:
                return int(value)
        ports = [port.get("containerPort").number for port in self.worker.pod.main.view.get("ports").items()]
        return next((port for port in ports if port in (22, SSH_PORT)), None)

    @property
    def runs_sshd(self) -> bool:
        """The worker's PID 1 is sshd: the operator's default where neither command nor args is set."""
        main = self.worker.pod.main
        default = self.version is Version.V2BETA1 and main.view.exists and not main.words
        return default or main.command.program == "sshd"


def is_ours(container: Container, verb: str) -> bool:
    """The container runs `hvd-elastic VERB`."""
    words = container.command.words
    return len(words) > 1 and words[0].program == "hvd-elastic" and words[1].text == verb


def _holds(mount: str | None, path: str) -> bool:
    return mount is not None and (path == mount or path.startswith(mount.rstrip("/") + "/"))


def is_mpijob(view: View) -> bool:
    """An MPIJob of Kubeflow, of whatever version."""
    api = view.get("apiVersion").text or ""
    return view.get("kind").value == "MPIJob" and (api.partition("/")[0] == GROUP or "/" not in api)


def jobs(documents: list[Document]) -> list[LintedJob]:
    """The jobs among the documents, Lists opened, each with the other objects beside it."""
    objects = [(document, view) for document in documents for view in _objects(document.view)]
    beside = companions([view for _, view in objects if not is_mpijob(view)])
    return [_job(document, view, beside) for document, view in objects if is_mpijob(view)]


def _objects(view: View) -> Iterator[View]:
    if view.get("kind").value in ("List", "MPIJobList") and isinstance(view.get("items").value, list):
        for item in view.get("items").items():
            yield from _objects(item)
    elif isinstance(view.value, dict):
        yield view


def _job(document: Document, view: View, beside: Companions) -> LintedJob:
    version = (view.get("apiVersion").text or "").rpartition("/")[2]
    spec = view.get("spec")
    main = spec.get("mainContainer").text if version == Version.V1 else None
    launcher = _replica(spec.get("mpiReplicaSpecs", "Launcher"), main)
    return LintedJob(
        document=document,
        view=view,
        version=Version(version) if version in tuple(Version) else None,
        launcher=launcher,
        worker=_replica(spec.get("mpiReplicaSpecs", "Worker"), main),
        call=parse(launcher.pod.main.command),
        companions=beside,
    )


def _replica(view: View, main: str | None) -> Replica:
    template = view.get("template")
    containers = tuple(map(_container, template.get("spec", "containers").items()))
    init = tuple(map(_container, template.get("spec", "initContainers").items()))
    empty = _container(View(None, (*template.path, "spec", "containers", 0)))
    first = next((c for c in containers if c.name == main), containers[0] if containers else empty)
    return Replica(view=view, pod=Pod(template=template, containers=containers, init=init, main=first))


def _container(view: View) -> Container:
    environment = {
        name: variable.get("value").text or ""
        for variable in view.get("env").items()
        if (name := variable.get("name").text) and not variable.get("valueFrom").exists
    }
    words = expand([*_words(view.get("command")), *_words(view.get("args"))], environment)
    command = unwrap(words, environment, PROGRAMS)
    return Container(view=view, environment=environment, command=command, words=words)


def _words(view: View) -> Iterator[ShellWord]:
    for item in view.items():
        if isinstance(item.value, str | int | float) and not isinstance(item.value, bool):
            yield ShellWord(str(item.value), item.path)
