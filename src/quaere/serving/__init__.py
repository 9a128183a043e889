"""HTTP servers: what `quaere serve` and `quaere serve-search` have in common.

server        makes a server of an application: socket, limits, log
guard         checks each request before the application sees it: Host, Origin, key, content type, size
connections   drops slow clients and keeps connections below the limit of open files
servers       the two servers: of an index and of a model

The applications are `serving/search_app.py` and `serving/model/app.py`. They do not deal with sockets, keys or hosts.
"""
