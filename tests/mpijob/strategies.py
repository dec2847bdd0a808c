"""Job descriptions for hypothesis: every key, and hostile text wherever any text is allowed."""

from typing import Any

from hypothesis import strategies as st

HOSTILE = (
    "$(HOSTNAME)",
    "$$(HOSTNAME)",
    "$(rm -rf /)",
    "`id`",
    "; reboot",
    "a: b",
    "- a",
    "&anchor",
    "*anchor",
    "!!python/object:os.system",
    "{{ template }}",
    "line\nbreak",
    "tab\tbed",
    "\r\n",
    "trailing ",
    " leading",
    "# no comment",
    "'",
    '"',
    "\\",
    "\x07bell",
    "\x1b[31m",
    "\x85next line",
    "\u2028separator",
    "\ufeffmark",
    "\U0001f40d",
    "yes",
    "off",
    "null",
    "~",
    "1e3",
    "0o17",
    "0x1F",
    "1_000",
    "12:30",
    "2026-01-01",
    ".inf",
    "<<",
    "=",
    "---",
    "...",
    "|",
    ">-",
    "%TAG",
    "@at",
    "",
)
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
    st.text(st.sampled_from("$()ab{}\n '\"\\:"), max_size=12),
)

names = st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
label_values = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?", fullmatch=True)
memory = st.builds(lambda number, unit: f"{number}{unit}", st.integers(1, 900), st.sampled_from(["Gi", "G", "Ti"]))

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "example.com/vgpu.large")


@st.composite
def workers(draw: st.DrawFn) -> dict[str, Any]:
    sizes = sorted(draw(st.tuples(*[st.integers(1, 64)] * 3)))
    gpus = draw(st.integers(0, 16))
    slots = draw(st.integers(1, gpus or 8))
    loaders = draw(st.integers(0, 4))
    drawn: dict[str, Any] = {"min": sizes[0], "start": sizes[1], "max": sizes[2], "gpus": gpus, "slots": slots}
    drawn |= {"loaders": loaders, "cpu": slots * max(1, loaders), "memory": draw(memory)}
    if gpus:
        drawn |= draw(st.fixed_dictionaries({}, optional={"gpu_resource": st.sampled_from(GPUS)}))
    resources = st.dictionaries(st.sampled_from(["rdma/hca", "example.com/fpga"]), st.integers(1, 8), max_size=2)
    others = {"disk": memory, "grace": st.integers(1, 15), "resources": resources}
    return drawn | draw(st.fixed_dictionaries({}, optional=others))


batches = st.one_of(
    st.fixed_dictionaries({"global": st.integers(100_000, 10**9)}),
    st.fixed_dictionaries(
        {"per_worker": st.integers(1, 4096)},
        optional={"learning_rate": st.sampled_from(["constant", "linear", "sqrt"])},
    ),
)
taints = st.one_of(
    st.fixed_dictionaries({"key": label_values}, optional={"value": label_values}),
    st.fixed_dictionaries({"key": label_values, "operator": st.just("Exists"), "effect": st.just("NoSchedule")}),
)

jobs = st.fixed_dictionaries(
    {
        "name": names,
        "image": st.just("registry.example.com/a/b:1@sha256:" + "0" * 64),
        "command": st.lists(texts, min_size=1, max_size=6),
        "workers": workers(),
        "network": st.fixed_dictionaries({}, optional={"policy": st.booleans(), "interface": st.just("ens5")}),
    },
    optional={
        "namespace": names,
        "env": st.dictionaries(st.from_regex(r"[A-G][A-G0-9_]{0,10}", fullmatch=True), texts, max_size=4),
        "secrets": st.lists(names, max_size=2),
        "workdir": st.just("/workspace/it"),
        "launcher": st.sampled_from(["horovodrun", "launch", {"kind": "launch", "cpu": 2}]),
        "standby": st.sampled_from(["init", "solo", "off"]),
        "batch": batches,
        "cloud": st.sampled_from(["any", "eks", "gke", "aks"]),
        "capacity": st.sampled_from(["spot", "on-demand", "prefer-spot"]),
        "instance_type": label_values,
        "zones": st.lists(label_values, max_size=3, unique=True),
        "one_zone": st.booleans(),
        "node_labels": st.dictionaries(label_values, label_values, max_size=2),
        "launcher_node_labels": st.dictionaries(label_values, label_values, max_size=2),
        "tolerations": st.lists(taints, max_size=2),
        "lost_node": st.sampled_from([0, 30, "2m"]),
        "data": st.sampled_from(
            [
                "claim",
                {"claim": "a", "mount": "/mnt/data"},
                {"size": "1Gi", "csi": {"driver": "nfs.csi.k8s.io", "handle": "h"}},
            ]
        ),
        "output": st.sampled_from(
            ["claim", {"claim": "b", "mount": "/mnt/output"}, {"size": 2**31, "storage_class": "x"}]
        ),
        "checkpoint": st.sampled_from(
            [
                "s3://bucket",
                {"url": "s3://b/c/", "every": "10m", "steps": 7},
                {"url": "s3://b/c", "warm_start": "s3://b/model.pt"},
            ]
        ),
        "elastic_timeout": st.integers(1, 10**6),
        "reset_limit": st.integers(1, 100),
        "restarts": st.integers(0, 9),
        "cooldown": st.tuples(st.integers(1, 9), st.integers(10, 3600)).map(list),
        "gloo_timeout": st.integers(1, 900),
        "deadline": st.sampled_from(["1h", 60]),
        "suspend": st.booleans(),
        "queue": st.sampled_from([{"system": "volcano", "name": "q"}, {"system": "kai", "name": "q"}]),
        "monitor": st.booleans(),
        "read_nodes": st.booleans(),
        "labels": st.dictionaries(label_values, label_values, max_size=2),
        "annotations": st.dictionaries(label_values, texts, max_size=2),
        "log_format": st.sampled_from(["text", "json"]),
    },
)
"""Descriptions without contradictions."""
