"""HTTP servers: of an index (`quaere serve-search`), of a model (`quaere serve`), and those that train (SkyRL).

server         makes a server of an application: socket, deadlines of connections, limits, log
guard          checks each request before the application sees it: Host, Origin, key, content type, size
search_app     the application of an index
model          the application of a model
trainer_server SkyRL processes of `quaere trainer`

The applications do not deal with sockets, keys or hosts.
"""
