"""What people hand to the linter that is no plain manifest: it is named, and never linted in vain."""

from pathlib import Path

import pytest

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.lint_input import LintInput, read_input
from tests.mpijob.lint.overlay import MANIFESTS

STOCK = (MANIFESTS / "stock-elastic.yaml").read_text()
JOB = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: flowers}
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: l, image: r/t, command: [mpirun, -np, "2", python, t.py]}]}}}
    Worker: {replicas: 2, template: {spec: {containers: [{name: w, image: r/t}]}}}
"""


def problem(text: str) -> tuple[str, str]:
    """Where a text's one problem is, and what it is. It leaves nothing to lint."""
    found = read_input(text, "f")
    (one,) = found.problems
    assert lint.check(list(found.documents)).jobs == ()
    return one.path, one.what


def whole(text: str) -> LintInput:
    """A text that is linted."""
    found = read_input(text, "f")
    assert found.problems == ()
    assert lint.check(list(found.documents)).jobs
    return found


@pytest.mark.parametrize(
    ("written", "template", "place"),
    [
        ("name: flowers", "name: {{ job_name }}", "f:3:18"),
        ("name: flowers", "name: '{{ job_name }}'", "f:3:18"),
        ("spec:\n", "{% if gpu %}\nspec:\n", "f:4:1"),
        ("replicas: 2", "replicas: ${WORKERS}", "f:7:24"),
        ("image: r/t", 'image: "${IMAGE}"', "f:6:62"),
        ('"2"', '"{{inputs.parameters.processes}}"', "f:6:0"),
        ('"2"', '"${PROCESSES}"', "f:6:0"),
    ],
)
def test_a_placeholder_is_no_value(written: str, template: str, place: str) -> None:
    text = JOB.replace("mpirun", "horovodrun").replace(written, template, 1)
    where, what = problem(text)
    assert what == "placeholders are not filled in"
    assert where.rpartition(":")[0] == place.rpartition(":")[0]


@pytest.mark.parametrize(
    "command",
    [
        "[sh, -c, 'horovodrun -np ${N} -H a:1,b:1 python t.py']",
        "[horovodrun, -np, '2', -H, 'a:1,b:1', python, '{{inputs.parameters.script}}', '${SCRATCH}']",
        "[sh, -c, \"kubectl get pods -o go-template='{{range .items}}{{.metadata.name}}{{end}}'; mpirun ./a\"]",
        "[horovodrun, -np, $(N), -H, 'a:1,b:1', python, t.py]",
    ],
)
def test_what_a_shell_or_a_script_expands_is_no_placeholder(command: str) -> None:
    whole(JOB.replace('[mpirun, -np, "2", python, t.py]', command))


def test_braces_elsewhere_are_not_blamed_for_an_error() -> None:
    (found,) = read_input(JOB.replace("python, t.py", "'{{x}}', '${X}'") + "a: [1\n", "f").problems
    assert found.what.startswith("not YAML")


def test_braces_in_objects_beside_the_job_are_their_own() -> None:
    beside = (
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: alerts}\ndata: {summary: '{{ $labels.pod }} ${X}'}\n"
    )
    whole(JOB + beside)


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (JOB.replace("  mpiReplicaSpecs:", "\tmpiReplicaSpecs:"), "f:5:1", "a tab indents this line"),
        (f"$ cat job.yaml\n{JOB}", "f:1:1", "a shell's prompt is no YAML"),
        (f"ana@login:~/jobs$ cat job.yaml\n{JOB}", "f:1:1", "a shell's prompt is no YAML"),
        (f"Here it is:\n\n```yaml\n{JOB}```\n", "f:3:1", "a fence of Markdown is no YAML"),
        (f"// my job\n{JOB}", "f:1:1", "`//` begins no comment in YAML or JSON"),
        (
            "Name:  flowers\nAPI Version:  kubeflow.org/v2beta1\nKind:         MPIJob\n",
            "f",
            "is what `kubectl describe` prints",
        ),
    ],
)
def test_a_snippet_is_named(text: str, place: str, what: str) -> None:
    assert problem(text) == (place, what)


def test_tabs_prompts_and_fences_in_a_readable_file_are_text() -> None:
    script = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: s}\ndata:\n  s: |\n    ```\n    $ ls\n    \tx\n"
    whole(JOB + script)


def test_a_job_inside_another_object_is_seen() -> None:
    katib = """apiVersion: kubeflow.org/v1beta1
kind: Experiment
spec:
  trialTemplate:
    trialSpec:
      apiVersion: kubeflow.org/v2beta1
      kind: MPIJob
      spec: {}
"""
    assert problem(katib) == ("f:5:5", "an MPIJob inside an Experiment is seen, and not read")
    inner = JOB.replace("\n", "\n    ")
    argo = f"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nspec:\n  manifest: |\n    {inner}"
    assert problem(argo) == ("f:4:13", "an MPIJob inside a Workflow is seen, and not read")
    _, what = problem("[{apiVersion: kubeflow.org/v1, kind: MPIJob, spec: {}}]")
    assert what == "an MPIJob inside a list is seen, and not read"


@pytest.mark.parametrize(
    "text",
    [
        "kind: HorizontalPodAutoscaler\nspec: {scaleTargetRef: {apiVersion: kubeflow.org/v1, kind: MPIJob, name: a}}\n",
        "kind: CustomResourceDefinition\nspec: {group: kubeflow.org, names: {kind: MPIJob, plural: mpijobs}}\n",
        "kind: Event\nmetadata: {annotations: {a: 'apiVersion: kubeflow.org/v1, kind: MPIJob'}}\n",
    ],
)
def test_what_only_names_mpijobs_is_none(text: str) -> None:
    assert read_input(text, "f").problems == ()


def test_a_list_of_jobs_is_read() -> None:
    indented = JOB.replace("\n", "\n  ")
    whole(f"kind: List\nitems:\n- {indented}")


@pytest.mark.parametrize(
    "spec",
    [
        "{mpiReplicaSpecs: {Worker: {replicas: 16}}}",
        "{runPolicy: {suspend: true}}",
        "{mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: l, env: [{name: A, value: b}]}]}}}}}",
    ],
)
def test_a_patch_is_no_job(spec: str) -> None:
    text = f"apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {{name: flowers}}\nspec: {spec}\n"
    assert problem(text) == ("f:1:1", "is a patch, not a whole MPIJob")


def test_a_job_with_a_misspelled_part_is_no_patch() -> None:
    whole(JOB.replace("mpiReplicaSpecs", "mpiReplicaSpec"))
    whole(JOB.replace("image: r/t", "imagee: r/t"))


def test_other_kinds_are_named(tmp_path: Path) -> None:
    assert (
        read_input("kind: TrainingJob\n---\nkind: Service\n---\nkind: Service\n").kinds == "a TrainingJob and a Service"
    )
    assert read_input("kind: A\n---\nkind: B\n---\nkind: C\n").kinds == "an A, a B and a C"
    assert read_input("[1]").kinds == "a list"
    assert read_input("# nothing\n").kinds == ""
