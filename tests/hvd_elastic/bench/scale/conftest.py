from tests.hvd_elastic.jobs.operations.conftest import cluster
from tests.hvd_elastic.jobs.profile.test_profile_verb import job

__all__ = ["cluster", "job"]
