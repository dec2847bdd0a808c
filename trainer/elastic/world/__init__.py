"""A process as a member of a world: its place, the rendezvous, connections to peers."""
