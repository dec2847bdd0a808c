"""Names of Kubernetes objects as values of options."""

import click


def checked_name(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """A click callback: the name, if Kubernetes takes it, and None if none was given. Raises click.BadParameter."""
    from hvd_elastic.mpijob.description.object_names import object_name

    if value is None:
        return None
    try:
        return object_name(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}") from None


def checked_place(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A click callback: `NAMESPACE/NAME`, and None if none was given. Raises click.BadParameter."""
    if value is not None:
        parts = value.split("/")
        if len(parts) != 2:
            raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME")
        for part in parts:
            checked_name(context, option, part)
    return value
