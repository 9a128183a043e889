"""HTTP servers: for an index (`quaere serve-search`), for a model (`quaere serve`), and for training (SkyRL).

server         runs an ASGI application: socket, deadlines of connections, limits, log
guard          checks each request before the application sees it: Host, Origin, key, content type, size
search_app     the application that searches an index
model          the application that samples from a model
trainer_server starts and stops the SkyRL training servers of `quaere trainer`

The applications do not deal with sockets, keys or hosts.
"""
