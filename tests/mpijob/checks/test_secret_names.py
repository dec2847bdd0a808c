"""The description and the linter take the same variables for secrets."""

import pytest

from hvd_elastic.mpijob.lint.rule import ManifestPart
from tests.mpijob.jobs import job, refused
from tests.mpijob.lint.rules_on import changed, findings

SECRETS = [
    "PASSWORD",
    "PGPASSWORD",
    "REDIS_PASSWORD",
    "TOKEN",
    "HF_TOKEN",
    "hf_token",
    "AWS_SESSION_TOKEN",
    "SECRET",
    "CLIENT_SECRET",
    "MINIO_SECRET_KEY",
    "AWS_SECRET_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "PRIVATE_KEY",
    "SSH_PRIVATE_KEY",
    "API_KEY",
    "WANDB_API_KEY",
    "APIKEY",
    "AZURE_STORAGE_KEY",
    "AZURE_OPENAI_KEY",
    "GITHUB_PAT",
    "GOOGLE_CREDENTIALS",
]
OTHERS = [
    "GOOGLE_APPLICATION_CREDENTIALS",
    "TOKENIZERS_PARALLELISM",
    "AWS_ACCESS_KEY_ID",
    "SORT_KEY",
    "PASSWORD_FILE",
    "PWD",
    "PATH",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_variable_that_holds_a_secret_is_refused(name: str) -> None:
    (message,) = refused(env={name: "abc"}).values()
    assert message.startswith(f"--env: '{name}': looks like a secret")


def test_a_variable_that_does_not_is_taken() -> None:
    assert list(job(env=dict.fromkeys(OTHERS, "abc")).env) == OTHERS


def test_the_linter_finds_the_same_ones_on_a_launcher() -> None:
    env = [{"name": name, "value": "abc"} for name in (*SECRETS, *OTHERS)]
    found = findings("HE421", changed(ManifestPart.LAUNCHER, {"env": env}))
    assert [one.value for one in found] == SECRETS
