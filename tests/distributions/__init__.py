"""The README's two commands on fresh Debian releases, as a newcomer types them (`make test-distributions`)."""
