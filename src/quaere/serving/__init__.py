"""HTTP servers: everything that `quaere serve` and `quaere serve-search` have in common.

server        makes a server of an application: the socket, the limits, the log
guard         checks each request before the application sees it: Host, Origin, key, content type, size
connections   drops slow clients and keeps connections below the limit of open files
servers       the two servers there are: an index, a model

The applications are `serving/search_app.py` and `serving/model/app.py`. They know nothing of sockets, keys and hosts.
"""
