"""What the launcher and Horovod's workers say to each other: the HTTP server, its messages, the rendezvous store."""
