"""A profile as text for people, and as CSV."""

import csv
import io

from hvd_elastic.client.profile.job_profile import JobProfile


def profile_text(profile: JobProfile, table: str) -> str:
    """The table of sizes, and under it what the fit is, and how far it may be off."""
    fit = profile.model.fit
    seen = ", ".join(map(str, fit.sizes))
    error = (
        f"sizes held out in turn: off by {fit.error.half:.1%} in the median, {fit.error.most:.1%} in 9 of 10"
        if fit.error
        else "only one size was seen, so others are as if scaling were ideal: --sizes measures more"
    )
    known = profile.batch
    batch = f"{known.total:g} samples a step" if known.total else f"{known.per_worker:g} samples a step of each worker"
    return f"{table}{profile.job}: sizes seen, in workers: {seen}; {batch}\n{error}\n"


def profile_csv(profile: JobProfile) -> str:
    """One line for each size, after a line of titles. What was not measured is empty."""
    rows = [{**row, "half": row["doubt"]["half"], "most": row["doubt"]["most"]} for row in profile.sizes()]
    text = io.StringIO()
    titles = [name for name in rows[0] if name != "doubt"]
    writer = csv.DictWriter(text, titles, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
