"""How the command that a launcher sends over ssh takes a standby over."""
