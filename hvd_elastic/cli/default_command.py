"""A verb with commands of which one may be left out: `VERB ARGUMENTS` is `VERB DEFAULT ARGUMENTS`."""

from typing import Any

import click


class GroupWithDefault(click.Group):
    """Takes what is no command for the arguments of its default one."""

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default
        """Name of the command that may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command before what is no command."""
        known = {*self.commands, *self.get_help_option_names(ctx)}
        return super().parse_args(ctx, args if not args or args[0] in known else [self.default, *args])
